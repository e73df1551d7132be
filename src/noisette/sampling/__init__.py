"""Sampling schemes: how batches are drawn, one file each."""

from noisette.sampling.poisson import EXAMPLE, UNIT, Poisson

__all__ = ["EXAMPLE", "UNIT", "Poisson"]
