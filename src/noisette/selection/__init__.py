"""Selection: choose the best of several private runs, at a price that is paid beforehand."""

from noisette.selection.candidates import LogUniform
from noisette.selection.tuning import Tuned, begin, go_on, tune

__all__ = ["LogUniform", "Tuned", "begin", "go_on", "tune"]
