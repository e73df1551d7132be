"""Tests of noisette; the folders mirror the package."""
