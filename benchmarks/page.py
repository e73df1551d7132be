"""docs/performance.md with the tables that benchmarks/results/step.json gives: `make bench-page`."""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "step.json"
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"


def with_numbers(page: str, found: dict[str, object]) -> str:
    """The page with its tables, which stand between two comments, made from the results."""
    start, end = "<!-- from step.json -->\n", "<!-- end -->"
    before, after = page.partition(start)[0], page.partition(end)[2]
    return before + start + tables(found) + end + after


def tables(found: dict[str, object]) -> str:
    lines = []
    for case in found["steps"]:
        lines += [f"Model {case['case']}, batch {case['batch']}, medians of {case['rounds']} rounds:", ""]
        lines += [
            "| step | ms | our Ranked + Student-t + KS step takes | our L2 + Gaussian step takes |",
            "|---|---|---|---|",
        ]
        for name, row in case["rows"].items():
            ratios = row["ratio"], row["l2_ratio"]
            cells = (f"{middle:.2f} of it ({low:.2f} to {high:.2f})" for low, middle, high in ratios)
            lines.append(f"| {name} | {row['ms']:.1f} | " + " | ".join(cells) + " |")
        lines.append("")
    memory, scaling = found["memory"], found["scaling"]
    for case, rows in memory.items():
        lines += [f"| {case} | peak memory above set-up, MB | a step, CPU seconds |", "|---|---|---|"]
        lines += [f"| {name} | {megabytes} | {seconds} |" for name, (megabytes, seconds) in rows.items()]
        lines.append("")
    lines += ["| coordinates | encoding one gradient, ms |", "|---|---|"]
    lines += [f"| {d:,} | {ms:.2f} |" for d, ms in zip(scaling["dims"], scaling["encode_ms"], strict=True)]
    lines += ["", "| batch, model M | step, ms |", "|---|---|"]
    lines += [f"| {b} | {ms:.1f} |" for b, ms in zip(scaling["batches"], scaling["step_ms"], strict=True)]
    lines += [
        "",
        f"Encoding is off a straight line by {scaling['encode_off_linear']:.0%} at most, the step by "
        f"{scaling['step_off_affine']:.0%}. Two threads have {found['two_threads']:.2f} times the throughput of one "
        f"(C, batch 64, wall time). Kernel: {found['kernel']}, torch {found['torch']}.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(with_numbers(PAGE.read_text(), json.loads(RESULTS.read_text())))
