"""What the tests of statements and pages need."""

from __future__ import annotations

from tests.app.commands.conftest import noisette

__all__ = ["noisette"]
