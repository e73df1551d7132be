"""Settings that every test shares: hypothesis without a clock and with fixed seeds, so that a failure repeats."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("fixed", deadline=None, derandomize=True, database=None)
settings.load_profile("fixed")
