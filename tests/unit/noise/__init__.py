"""Tests of the noise laws."""
