"""Tables and pictures as Markdown, for the sections of docs/results.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["picture", "table"]


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a bar within a cell is escaped.

    >>> print(table(["noise", "error"], [["Gaussian", "1.1"]]), end="")
    | noise | error |
    |---|---|
    | Gaussian | 1.1 |
    """
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in [columns, *rows]]
    return lines[0] + "|" + "---|" * len(columns) + "\n" + "".join(lines[1:])


def picture(name: str, words: str) -> str:
    """The picture of a figure, with words for who cannot see it.

    >>> picture("best", "Accuracy rising with epsilon")
    '![Accuracy rising with epsilon](../experiments/results/best.png)'
    """
    return f"![{words}](../experiments/results/{name}.png)"
