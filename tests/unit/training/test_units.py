"""Units: people are drawn and not examples, a few of their examples each, averaged and encoded as one."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import Dataset

from noisette import Encoder, Generator, Mechanism, Poisson, make_private, plan
from noisette._gradients import PerExampleGradients
from noisette.audit._canary import neighbours
from noisette.audit.step import attacks
from noisette.encoders import L2, Ranked, Snap
from noisette.encoders.profiles import Tails
from noisette.errors import InvalidInput
from noisette.noise import Gaussian
from noisette.training import Processes, _rank_slice
from noisette.training._units import Units, encode_ids
from tests.promises.test_sensitivity import MODELS, _inside
from tests.promises.test_sensitivity import Case as Tolerance
from tests.support.helpers import refused
from tests.support.poisson_test import LEVEL, sampling_faults
from tests.support.tiny_run import flat

LOSS = nn.CrossEntropyLoss()
SIZES = [1, 1, 2, 3, 5, 8, 13, 21, 34, 60] * 3
UNITS = len(SIZES)
IDS = np.random.default_rng(0).permutation(np.repeat(np.arange(UNITS), SIZES))


# -- who is drawn ------------------------------------------------------------------------------------------------------


def drawn(
    steps: int, rate: float, per_unit: int = 4, seed: int = 0
) -> tuple[list[np.ndarray], list[_rank_slice.BatchDraw]]:
    """The units of every step, found from the examples that were taken, and the draws themselves."""
    units = Units(encode_ids(IDS), per_unit)
    mine = _rank_slice.RankSlice(len(IDS), Processes(), units=units)
    mechanism = Mechanism(L2(dim=1), Gaussian(1.0), sampling=Poisson(rate, unit="unit"), steps=steps)
    found = list(_rank_slice.batch_draws((mechanism,), [steps], mine, Generator(seed, purpose="sampling")))
    return [np.unique(units.numbers[draw.index]) for draw in found], found


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_units_are_drawn_by_poisson_sampling(rate: float) -> None:
    """Whether a unit has one example or sixty."""
    assert sampling_faults(drawn(2000, rate)[0], UNITS, rate) == []


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5])
def test_units_are_drawn_by_poisson_sampling_over_20000_steps(rate: float) -> None:
    assert sampling_faults(drawn(20_000, rate, seed=1)[0], UNITS, rate) == []


def test_of_every_unit_so_many_examples_are_taken_and_no_more() -> None:
    numbers, sizes = encode_ids(IDS), np.bincount(encode_ids(IDS))
    for draw in drawn(50, 0.5)[1]:
        assert draw.groups is not None
        assert len(np.unique(draw.index)) == len(draw.index), "nobody's example twice"
        assert np.all(np.diff(draw.groups) >= 0)
        for group in range(draw.groups.max() + 1):
            (unit,) = np.unique(numbers[draw.index[draw.groups == group]])
            assert np.sum(draw.groups == group) == min(4, sizes[unit])


def test_which_ones_is_drawn_anew_and_each_as_often() -> None:
    """Chi-square over the sixty examples of a unit, at level 1e-6; and they are others than the time before."""
    units, generator = Units(encode_ids(IDS), 4), Generator(3)
    largest = np.array([int(np.bincount(units.numbers).argmax())])
    taken = np.array([np.sort(units.sample_members(largest, generator)[0]) for _ in range(3000)])
    counts = np.bincount(taken.ravel(), minlength=len(IDS))[np.flatnonzero(units.numbers == largest[0])]
    assert counts.sum() == taken.size
    assert stats.chisquare(counts).pvalue > LEVEL
    again = np.all(taken[1:] == taken[:-1], axis=1).mean()
    assert again < 0.01, "there are half a million choices"


# -- what it adds to the sum -------------------------------------------------------------------------------------------

ENCODERS: dict[str, Callable[[int], Encoder]] = {
    "L2": lambda dim: L2(dim, 0.5),
    "Ranked": lambda dim: Ranked(dim, Tails()),
    "Snap": Snap,
}


class Listed(Dataset[Any]):
    """Examples that are read one by one."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, number: int) -> Any:
        return self.x[number], self.y[number]


class Bare(nn.Module):
    """A weight of its own, which no layer rule knows: vmap, or, where it looks at its input, a loop over examples."""

    def __init__(self, looks: bool) -> None:
        super().__init__()
        self.weight, self.looks = nn.Parameter(torch.zeros(3, 3)), looks

    def forward(self, x: Tensor) -> Tensor:
        return -x @ self.weight if self.looks and float(x.sum()) > 0 else x @ self.weight


KINDS = MODELS | {"mapped": ((3,), lambda *_: Bare(looks=False)), "looped": ((3,), lambda *_: Bare(looks=True))}


def network(kind: str, dtype: torch.dtype) -> nn.Module:
    model = KINDS[kind][1](4, 3)
    generator = torch.Generator().manual_seed(1)
    for p in model.parameters():
        nn.init.normal_(p, generator=generator)
    return model.to(dtype)


def population(kind: str, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, list[str]]:
    """Six units of one to twelve examples, and behind them one of `size`, whose examples differ."""
    ids = [f"u{unit}" for unit, count in enumerate([1, 2, 3, 5, 9, 12]) for _ in range(count)] + ["new"] * size
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(len(ids), *KINDS[kind][0], dtype=torch.float64, generator=generator)
    return x.to(dtype), torch.randint(3, (len(ids),), generator=generator), ids


class Coupled:
    """Stands in for the sampler's generator: who comes first draws the same, whether or not others come behind."""

    def __init__(self) -> None:
        self._turn = 0

    def uniforms(self, n: int) -> np.ndarray:
        self._turn += 1
        return np.random.default_rng(self._turn).random(n)

    def bernoulli(self, n: int, chance: float) -> np.ndarray:
        return self.uniforms(n) <= chance


def unit_sum(
    kind: str, encoder: Encoder, data: tuple[Tensor, Tensor], ids: list[str], read: bool, **other: Any
) -> Tensor:
    """The sum of one step that takes everybody, before noise."""
    model = network(kind, data[0].dtype)
    mechanism = Mechanism(encoder, Gaussian(1.0), 1.0, 1)
    run = make_private(model, LOSS, Listed(*data) if read else data, mechanism, units=ids, seed=4, chunk=5, **other)
    run._sampling = Coupled()  # type: ignore[assignment]
    return run._encode_batch_sum(run.mechanisms[0]).unsafe_values()


def _row(kind: str, x: Tensor, y: Tensor) -> Tensor:
    """The mean gradient of some examples, by one backward pass for each."""
    model = network(kind, torch.float64)
    losses = (LOSS(model(x[i : i + 1].double()), y[i : i + 1]) for i in range(len(x)))
    return torch.stack([flat(torch.autograd.grad(loss, list(model.parameters()))) for loss in losses]).mean(dim=0)


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("kind", "name", "read", "dtype"),
    [
        ("dense", "L2", False, torch.float64),
        ("dense", "Ranked", True, torch.float64),
        ("normed", "Snap", False, torch.float64),
        ("convolutional", "Ranked", False, torch.float32),
        ("convolutional", "L2", True, torch.float32),
        ("mapped", "L2", False, torch.float64),
        ("looped", "L2", True, torch.float64),
    ],
)
@pytest.mark.filterwarnings("ignore::noisette._gradients.SlowPath")
def test_one_unit_moves_the_sum_by_the_encoding_of_its_mean(
    kind: str, name: str, read: bool, dtype: torch.dtype, size: int
) -> None:
    """However many examples it has, within the image; up to `per_unit`, by exactly the encoding of their mean."""
    x, y, ids = population(kind, size, dtype)
    encoder = ENCODERS[name](sum(p.numel() for p in network(kind, dtype).parameters()))
    with_it = unit_sum(kind, encoder, (x, y), ids, read)
    without = unit_sum(kind, encoder, (x[:-size], y[:-size]), ids[:-size], read)
    moved = with_it - without
    assert moved.abs().max() > 1e-3
    if dtype == torch.float64:
        _inside(moved, encoder.image, Tolerance())
    else:  # rows of float32 differ in their last bits with the company they are computed in
        assert moved.norm() <= encoder.image.norm * (1 + 1e-6)
    if size <= 8 and name == "L2":
        expected = encoder.encode(_row(kind, x[-size:], y[-size:])[None])[0]
        torch.testing.assert_close(moved, expected, rtol=0, atol=1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.filterwarnings("ignore::noisette._gradients.SlowPath")
@pytest.mark.parametrize("kind", ["dense", "mapped", "looped"])
def test_units_have_one_path_whatever_the_model(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, however they are computed: sums that clip examples one by one, like the kernel's, never see a unit."""

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("examples are encoded one by one")

    monkeypatch.setattr(PerExampleGradients, "encoded_sum", never)
    x, y, ids = population(kind, 7, torch.float32)
    encoder = L2(sum(p.numel() for p in network(kind, torch.float32).parameters()))
    assert unit_sum(kind, encoder, (x, y), ids, False).count_nonzero() > 0


def test_the_mean_is_taken_before_encoding() -> None:
    """Two examples that pull against each other with all their might: of one unit, of two, and one of them alone."""
    x = torch.tensor([[50.0, 0.0], [-50.0, 1.0]], dtype=torch.float64)
    clipped = (x / x.norm(dim=1, keepdim=True)).sum(dim=0)
    for ids, expected in ((["a", "a"], [0.0, 0.5]), (["a", "b"], clipped.tolist()), (["a"], [1.0, 0.0])):
        model = nn.Linear(2, 1, bias=False).double()
        mechanism = Mechanism(L2(dim=2), Gaussian(1.0), 1.0, 1)
        run = make_private(model, lambda model, batch: model(batch)[:, 0], x[: len(ids)], mechanism, units=ids)
        found = run._encode_batch_sum(run.mechanisms[0]).unsafe_values()
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-6)


def test_the_update_is_over_the_expected_number_of_units() -> None:
    x, y, ids = population("dense", 7, torch.float64)
    model = network("dense", torch.float64)
    mechanism = Mechanism(L2(), Gaussian(1.0), 0.5, 1)
    run = make_private(model, LOSS, (x, y), mechanism, units=ids, seed=1)
    released = run.step().values
    torch.testing.assert_close(flat(p.grad for p in model.parameters()), released / (0.5 * 7))


def test_as_many_units_as_examples_is_what_it_is_without_units() -> None:
    """The same sum, and the same epsilon, which is said of units."""
    x, y, _ = population("dense", 7, torch.float64)
    mechanism = Mechanism(L2(), Gaussian(1.0), 1.0, 2)
    sums, promises = [], []
    for units in (None, range(len(x))):
        run = make_private(network("dense", torch.float64), LOSS, (x, y), mechanism, units=units)
        sums.append(run._encode_batch_sum(run.mechanisms[0]).unsafe_values())
        run.step()
        promises.append(run.guarantee(1e-3))
    torch.testing.assert_close(*sums, rtol=0, atol=1e-12)
    assert promises[0].epsilon == promises[1].epsilon
    assert "one unit with all its examples" in promises[1].adjacency


def test_one_unit_with_all_examples() -> None:
    x, y, ids = population("dense", 7, torch.float64)
    mechanism = Mechanism(L2(), Gaussian(1.0), 1.0, 1)
    run = make_private(network("dense", torch.float64), LOSS, (x, y), mechanism, units=[7] * len(ids))
    assert run._encode_batch_sum(run.mechanisms[0]).unsafe_values().norm() <= 1 + 1e-12


# -- ids ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ids",
    [
        ["a", "b", "a"],
        [1, 2, 1],
        [1.5, 2.5, 1.5],
        [("x", 1), ("x", 2), ("x", 1)],
        [frozenset({1}), frozenset(), frozenset({1})],
        [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)],
        [b"a", "a", b"a"],
        [0, False + 1, 0],
        torch.tensor([4, 5, 4]),
        np.array(["a", "b", "a"]),
        np.array([3, 9, 3], dtype=np.uint8),
        (n % 2 for n in range(3)),
        np.array(["2020-01-01", "2020-01-02", "2020-01-01"], dtype="datetime64[ns]"),
        pandas.Series(["a", "b", "a"], dtype="category"),
        pyarrow.array(["a", "b", "a"]),
        [("Doe", None), ("Doe", "J."), ("Doe", None)],
        ["Nan", "NA", "Nan"],
    ],
    ids=lambda ids: type(ids).__name__,
)
def test_ids_of_any_hashable_type(ids: Any) -> None:
    assert encode_ids(ids).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([1, None, 2], "have no id"),
        ([1.0, float("nan"), 2.0], "have no id"),
        (np.array([1.0, np.nan, 2.0]), "have no id"),
        (["a", "", "b"], "have no id"),
        (["a", np.datetime64("NaT"), "b"], "have no id"),
        (np.array(["2020-01-01", "NaT", "2020-01-01"], dtype="datetime64[ns]"), "have no id"),
        (np.array(["a", float("nan"), "b"]), "have no id"),
        (np.ma.masked_array([1, 2, 3], [False, True, False]), "have no id"),
        (pandas.Series(["a", None, "b"]).astype("string"), "have no id"),
        (pandas.Series([1, None, 2]), "have no id"),
        (pyarrow.array([1, None, 2]), "have no id"),
        ([("a", float("nan")), ("a", float("nan")), ("a", 1.0)], "have no id"),
        ([(), (1,), (1,)], "have no id"),
        (["a", "  ", "b"], "have no id"),
        (["a", "null", "b"], "have no id"),
        ([b"a", b"", b"b"], "have no id"),
        (["a", "b"], "2 ids for 3 examples"),
        ([[1], [2], [3]], "cannot be told from others"),
        (torch.ones(3, 2), "cannot be told from others"),
        (list(torch.tensor([1, 1, 1])), "equals no other"),
        ("abc", "not ids"),
        (7, "not ids"),
        ({"a": 1}, "not ids"),
    ],
    ids=str,
)
def test_ids_that_say_too_little(ids: Any, says: str) -> None:
    with refused(InvalidInput, says):
        Units.of(ids, examples=3, per_unit=1)


@pytest.mark.parametrize("per_unit", [0, -1, 1.5, True, None, "8"])
def test_bad_numbers_of_examples(per_unit: Any) -> None:
    with refused(InvalidInput, "per_unit"):
        Units.of([1, 2], examples=2, per_unit=per_unit)


def test_units_and_mechanism_have_to_agree() -> None:
    x, y, ids = population("dense", 7, torch.float64)
    of_units = Mechanism(L2(), Gaussian(1.0), sampling=Poisson(0.5, unit="unit"), steps=1)
    with refused(InvalidInput, "nobody says whose examples"):
        make_private(network("dense", torch.float64), LOSS, (x, y), of_units)
    with refused(InvalidInput, "micro-batches of units"):
        make_private(
            network("dense", torch.float64),
            LOSS,
            (x, y),
            Mechanism(L2(micro_batch=2), Gaussian(1.0), 0.5, 1),
            units=ids,
        )
    with refused(InvalidInput, "a unit may have examples of several processes"):
        make_private(network("dense", torch.float64), LOSS, (x, y), of_units, units=ids, sharded=True)


# -- plans and audits --------------------------------------------------------------------------------------------------


def test_a_plan_counts_units() -> None:
    x, y, ids = population("dense", 7, torch.float64)
    found = plan(network("dense", torch.float64), (x, y), epsilon=3.0, delta=1e-3, batch=2, epochs=5, units=ids)
    assert (found.rate, found.steps, found.sampling.unit) == (2 / 7, 18, "unit")
    with refused(InvalidInput, "a batch of 8 is more than the 7 units"):
        plan(network("dense", torch.float64), (x, y), epsilon=3.0, delta=1e-3, batch=8, steps=1, units=ids)


def check_audit(steps: int) -> None:
    """Where every batch shows who was in it: no reason to refute."""
    mechanism = Mechanism(L2(dim=20), Gaussian(1.0), sampling=Poisson(0.1, unit="unit"), steps=1)
    _, plain = islice(attacks(mechanism, steps=steps, level=1e-4, seed=0), 2)
    assert plain.regime == "tiny noise"
    assert plain.reasons == ()


def test_the_audit_s_canary_is_a_whole_unit() -> None:
    check_audit(100)
    pair = neighbours(
        Mechanism(L2(dim=20), Gaussian(1.0), sampling=Poisson(0.1, unit="unit"), steps=1), Generator(1), flip=True
    )
    assert len(pair.with_canary) == len(pair.without) + 30
    assert np.linalg.norm(pair.shift) == pytest.approx(1.0, rel=1e-6)
