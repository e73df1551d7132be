"""Profiles: what an encoded gradient's sorted magnitudes may be at most, rank by rank.

A profile is a list of ascending (level, count) pairs: the smallest `count` magnitudes are at most the first level,
and so on. Levels make accounting exact and cheap (its cost grows with the levels, not with the dimension). A
`Profiles` value is a family: written down once, before private data is seen, and built for a dimension when needed.
"""

from noisette.encoders.profiles.base import Profiles, ProfileSet, build
from noisette.encoders.profiles.blocks import Blocks
from noisette.encoders.profiles.quantiles import HalfNormal, Power, Quantiles, Tails
from noisette.encoders.profiles.sampled import Empirical, PaperGaussian

__all__ = [
    "Blocks",
    "Empirical",
    "HalfNormal",
    "PaperGaussian",
    "Power",
    "ProfileSet",
    "Profiles",
    "Quantiles",
    "Tails",
    "build",
]
