"""Settings that every test shares: hypothesis without a clock and with fixed seeds, so that a failure repeats."""

from __future__ import annotations

from hypothesis import settings

import noisette._numerics  # noqa: F401 - before any test module multiplies, as a program imports noisette

settings.register_profile("fixed", deadline=None, derandomize=True, database=None)
settings.load_profile("fixed")
