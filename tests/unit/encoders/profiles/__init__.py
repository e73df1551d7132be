"""Tests of the profile families."""
