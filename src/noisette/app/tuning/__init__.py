"""Selection: choose the best of several private runs, at a price that is paid beforehand."""

from noisette.app.tuning.search import Tuned, begin, go_on, tune
from noisette.app.tuning.search_space import LogUniform

__all__ = ["LogUniform", "Tuned", "begin", "go_on", "tune"]
