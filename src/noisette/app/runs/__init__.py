"""Runs: folders on disk, what is in them, and how they are started, resumed and restarted."""

from noisette.app.runs.build import Assembly
from noisette.app.runs.inputs import Seen
from noisette.app.runs.run_folder import load, new_folder, reopen, start
from noisette.app.runs.training_run import OpenRun

__all__ = ["Assembly", "OpenRun", "Seen", "load", "new_folder", "reopen", "start"]
