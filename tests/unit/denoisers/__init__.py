"""Tests of single denoisers; what all of them promise is in tests/conformance."""
