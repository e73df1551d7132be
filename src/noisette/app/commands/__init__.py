"""The command line. Every command takes --json; exit status 0 done, 1 error with a hint, 2 usage, 3 refuted.

Modules here import the library inside functions: what the command line can say without torch it says at once.
"""

from __future__ import annotations

import importlib.util
import io
import os
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Annotated, Any

import typer

from noisette.app.commands.account import account_command, calibrate_command, compare_command
from noisette.app.commands.audit import audit_command
from noisette.app.commands.check import check_command
from noisette.app.commands.data import data_app
from noisette.app.commands.output import fail, show
from noisette.app.commands.predict import predict_command
from noisette.app.commands.report import report_command
from noisette.app.commands.train import resume_command, show_command, train_command
from noisette.app.commands.tune import tune_command
from noisette.errors import InvalidInput, NoisetteError

__all__ = ["app", "main"]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
app.command("account")(account_command)
app.command("calibrate")(calibrate_command)
app.command("compare")(compare_command)
app.command("check")(check_command)
app.command("train")(train_command)
app.command("resume")(resume_command)
app.command("show")(show_command)
app.command("predict")(predict_command)
app.command("audit")(audit_command)
app.command("report")(report_command)
app.command("tune")(tune_command)
app.add_typer(data_app, name="data")


@app.callback(invoke_without_command=True)
def _root(
    load: Annotated[list[Path] | None, typer.Option("--load", help="A Python file with classes of your own.")] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Train PyTorch models with differential privacy: any noise, and an epsilon that is a certified bound."""
    if version:
        from importlib.metadata import version as version_of  # a tenth of what `--help` takes

        show.print(f"noisette {version_of('noisette')}")
        raise typer.Exit
    for number, path in enumerate(load or []):
        _import(path, f"noisette_loaded_{number}")


class _Unkept(SourceFileLoader):
    """Loads a file without leaving bytecode beside it: a command that fails changes nothing on disk."""

    def set_data(self, *_: Any, **__: Any) -> None:
        """Keep nothing."""


def _import(path: Path, name: str) -> None:
    if not os.path.isfile(path) or path.suffix != ".py":
        raise InvalidInput(f"there is no Python file {path}.", hint="--load takes the path of a .py file")
    spec = importlib.util.spec_from_file_location(name, path, loader=_Unkept(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except NoisetteError:
        raise
    except Exception as error:  # noqa: BLE001 - code of others fails in ways of its own
        told = f"{type(error).__name__}: {error}".rstrip(".")
        raise InvalidInput(
            f"{path} fails when it is loaded ({told}).", hint=f"run python {path} to see where"
        ) from None


def main() -> None:
    """Run the command line; errors of the library end in a sentence and a hint, not in a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be text
    try:
        app()
    except NoisetteError as error:
        sys.exit(fail(error))
    except OSError as error:  # of a file that a command was given, where nothing closer has more to say
        from noisette._io import reason

        about = f"{error.filename!r}: " if error.filename else ""
        told = InvalidInput(f"{about}{reason(error)}.", hint="check the paths that were given, and the disk")
        sys.exit(fail(told))
