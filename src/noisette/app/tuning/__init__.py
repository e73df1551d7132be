"""Selection: choose the best of several private runs, at a price that is paid beforehand."""

from noisette.app.tuning.search import TuneResult, resume_search, start_search, tune
from noisette.app.tuning.search_space import LogUniform

__all__ = ["LogUniform", "TuneResult", "resume_search", "start_search", "tune"]
