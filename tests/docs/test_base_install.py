"""The base install has neither matplotlib nor scikit-learn nor Pillow: it accounts and trains, and names the extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.helpers import refused

EXTRAS = ("matplotlib", "sklearn", "PIL")
_WITHOUT = f"import sys\nsys.modules.update(dict.fromkeys({EXTRAS!r}))\n"  # whoever imports one gets an ImportError
_ACCOUNTS = """
import torch
from noisette import Mechanism, guarantee, make_private
from noisette.encoders import L2
from noisette.noise import Gaussian
mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.1, steps=3)
data = torch.randn(100, 4), torch.randint(2, (100,))
private = make_private(torch.nn.Linear(4, 2), torch.nn.CrossEntropyLoss(), data, mechanism)
print([step for step in private], private.guarantee(1e-5))
import noisette.app.commands, noisette.app.datasets, noisette.app.recipes
import noisette.private_means, noisette.audit, noisette.accounting
noisette.app.commands.main()
"""


def bare(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Account, train in a loop of one's own, and run a command, with the extras out of reach."""
    command = [sys.executable, "-c", _WITHOUT + _ACCOUNTS, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_base_install_accounts_and_names_what_it_lacks(tmp_path: Path) -> None:
    done = bare(tmp_path, "train", "digits")
    assert done.stdout.startswith("[1, 2, 3] epsilon = 2.087 at delta = 1e-05")
    assert done.returncode == 1
    assert 'scikit-learn is not installed.\n\nhint: install the extra: pip install "noisette[sklearn]"' in done.stderr
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_a_run_is_kept_where_nothing_can_draw(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i % 7},{i % 2}\n" for i in range(50)))
    done = bare(tmp_path, "train", "tabular", "--data", "csv:t.csv:y:0.2", "--steps", "2")
    assert done.returncode == 0, done.stderr
    assert "there is no plot: matplotlib is not installed." in done.stderr
    assert "noisette[plot]" in done.stderr
    assert next(tmp_path.glob("runs/*/model.pt")).stat().st_size > 0


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("noisette.estimators", "sklearn", "sklearn"),
        ("noisette.app.reports._mpl_style", "matplotlib.axes", "plot"),
        ("noisette.app.datasets._image_folder", "PIL", "images"),
    ],
)
def test_modules_of_extras_name_them(module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with refused(ImportError, match=rf"noisette\[{extra}\]"):
        __import__(module)
