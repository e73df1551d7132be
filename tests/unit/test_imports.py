"""Imports go one way, modules stay small, and noise comes from one generator only. Read from the source, with ast."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import noisette

ROOT = Path(noisette.__file__).parent
ORDER = [
    {"errors", "_native._extension"},
    {"_regular", "_native", "_spec", "random", "_io", "_pytree", "_guarantee", "_locks", "_numerics"},
    {"objectives", "sampling", "_quantization"},
    {"noise"},
    {"encoders.profiles"},
    {"_native.cpu", "_native.reference"},
    {"_private"},
    {"encoders"},
    {"mechanism"},
    {"_release"},
    {"denoisers"},
    {"_gradients"},
    {"training"},
    {"audit"},
    {"private_means"},
    {"estimators", "integrations"},
    {
        "app",
        "app.commands",
        "app.datasets",
        "app.features",
        "app.models",
        "app.recipes",
        "app.reports",
        "app.runs",
        "app.tuning",
    },
]
RANK = {part: rank for rank, parts in enumerate(ORDER) for part in parts}
ACCOUNT = RANK["mechanism"] + 0.5  # beside the trainer: it sees the mechanism and what is below
ONLY_IN = {"typer": "app.commands", "rich": "app.commands", "matplotlib": "app.reports"}


def place(module: str) -> str:
    """The part that a module belongs to: the longest beginning of its name that has a place."""
    parts = module.split(".")
    heads = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((head for head in heads if head in {*RANK, "accounting"}), parts[0])


GLOBAL_RANDOM = ("np.random", "numpy.random", "torch.rand", "torch.normal", "torch.manual_seed", "random.")


def modules() -> Iterator[tuple[Path, str, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        part = place(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
        if part not in {"__init__", "__main__"}:
            yield path, part, ast.parse(path.read_text())


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def faults(part: str, tree: ast.Module) -> list[str]:
    """What a module of `part` imports against the rules."""
    found = []
    for name in imported(tree):
        top, _, rest = name.partition(".")
        if ONLY_IN.get(top, part) != part:
            found.append(f"{top} belongs in {ONLY_IN[top]}/")
        target = place(rest)
        if top != "noisette" or target == part:
            continue
        if target not in RANK and target != "accounting":
            found.append(f"{name} is the package itself or unknown: import from its module")
        elif part == "accounting" and RANK.get(target, 0) > ACCOUNT:
            found.append(f"accounting imports {target}")
        elif target == "accounting" and part != "accounting" and RANK[part] < ACCOUNT:
            found.append(f"{part} imports accounting")
        elif part != "accounting" and target != "accounting" and RANK[target] > RANK[part]:
            found.append(f"{part} imports {target}")
    return found


def test_every_part_has_a_place() -> None:
    assert {part for _, part, _ in modules()} <= {*RANK, "accounting"}


def test_imports_go_one_way() -> None:
    assert {str(path.relative_to(ROOT)): found for path, part, tree in modules() if (found := faults(part, tree))} == {}


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("noise", "from noisette.encoders import L2"),
        ("mechanism", "import noisette.accounting.rdp"),
        ("accounting", "from noisette._release import release"),
        ("accounting", "from noisette.training.trainer import Trainer"),
        ("accounting", "from noisette.denoisers import KS"),
        ("accounting", "from noisette.audit import audit"),
        ("_spec", "from noisette.noise import Gaussian"),
        ("training", "import rich"),
        ("app.commands", "import matplotlib.pyplot"),
        ("encoders", "def f():\n    from noisette.training import Trainer"),
    ],
)
def test_the_import_check_can_fail(part: str, line: str) -> None:
    assert faults(part, ast.parse(line)) != []


def too_long(folder: Path) -> dict[str, int]:
    sources = [path for ending in ("py", "cpp", "hpp") for path in folder.rglob(f"*.{ending}")]
    lines = {str(path.relative_to(folder)): len(path.read_text().splitlines()) for path in sources}
    return {name: n for name, n in lines.items() if n > 350}


def test_modules_are_small(tmp_path: Path) -> None:
    """C++ included, which lies beside the Python."""
    assert (ROOT / "_native" / "cpp" / "kernel.cpp").is_file()
    assert too_long(ROOT) == {}
    for name in ("a.py", "b.cpp", "c.hpp"):
        (tmp_path / name).write_text("\n" * 351)
    assert too_long(tmp_path) == {"a.py": 351, "b.cpp": 351, "c.hpp": 351}, "the check can fail"


def test_no_global_randomness_below_the_release() -> None:
    """Whatever makes noise or profiles draws from `Generator` alone."""
    for path, part, tree in modules():
        if RANK.get(part, ACCOUNT) > ACCOUNT and part != "_release":
            continue
        used = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        assert not [name for name in used if name.startswith(GLOBAL_RANDOM)], path
        assert not [n for n in imported(tree) if n.split(".")[0] in {"random", "secrets"}], path
        assert not [name for name in used if name.endswith((".rvs", ".normal_", ".uniform_", ".bernoulli_"))], path
