"""Runs: folders on disk, what is in them, and how they are started, resumed and restarted."""

from noisette.app.runs.build import RunBuilder
from noisette.app.runs.inputs import ModelInputs
from noisette.app.runs.run_folder import load, new_folder, reopen, start
from noisette.app.runs.training_run import OpenRun

__all__ = ["ModelInputs", "OpenRun", "RunBuilder", "load", "new_folder", "reopen", "start"]
