"""Faults are planted by replacing functions whose results are remembered: forget them before and after."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from noisette.encoders import Image
from noisette.encoders._rank_based import SortedProfile
from noisette.encoders.profiles import ProfileSet
from tests.support.accounting_checks import PAIR, members
from tests.support.accounting_references import forget


@pytest.fixture
def planting(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    forget()
    with monkeypatch.context() as patch:
        yield patch
    forget()


@pytest.fixture
def pair(planting: pytest.MonkeyPatch) -> None:
    """`PAIR` gets the image that holds both members."""
    flat, peak = (np.repeat(m.blocks[0].levels[0], m.blocks[0].counts) for m in members())
    both = Image(norm=1.0, profiles=(ProfileSet(np.stack([flat, peak]), np.ones(400, dtype=np.int64)),))
    ordinary = SortedProfile._image_of_one.fget
    planting.setattr(SortedProfile, "_image_of_one", property(lambda self: both if self == PAIR else ordinary(self)))
