"""The library attacks itself: three audits that can refute a claim of privacy, and can never prove one."""

from noisette.audit.one_run import OneRun, one_run
from noisette.audit.replay import Replay, replay
from noisette.audit.step import Audit, Point, audit

__all__ = ["Audit", "OneRun", "Point", "Replay", "audit", "one_run", "replay"]
