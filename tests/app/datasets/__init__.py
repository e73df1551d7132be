"""Tests of the data sets."""
