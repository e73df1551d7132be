"""P2 on random models, batches and neighbours: taking one example out moves the private sum by exactly its encoding.

Neighbours are coupled: every example keeps its own random numbers whether or not another one is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from noisette import Encoder, Generator, Mechanism
from noisette._gradients import PerExampleGradients
from noisette.encoders import L2, Image, Ranked, Snap
from noisette.encoders.profiles import Blocks, HalfNormal, PaperGaussian, Tails
from noisette.noise import Gaussian
from noisette.training import make_private
from tests.conformance.encoder_checks import outside_image
from tests.support.tiny_run import flat
from tests.unit.training.test_reading import watched

MODELS: dict[str, tuple[tuple[int, ...], Callable[[int, int], nn.Module]]] = {
    "linear": ((3,), lambda width, classes: nn.Linear(3, classes)),
    "dense": ((3,), lambda width, classes: nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, classes))),
    "normed": (
        (3,),
        lambda width, classes: nn.Sequential(
            nn.Linear(3, width + 1), nn.LayerNorm(width + 1), nn.Tanh(), nn.Linear(width + 1, classes)
        ),
    ),
    "convolutional": (
        (1, 3, 3),
        lambda width, classes: nn.Sequential(
            nn.Conv2d(1, width, 2), nn.Tanh(), nn.Flatten(), nn.Linear(4 * width, classes)
        ),
    ),
}
"""The shape of an example, and the model: the normed one goes the general path. LayerNorm over two would make ties."""

ENCODERS: dict[str, Callable[[tuple[int, ...], float], Encoder]] = {
    "L2": lambda dims, radius: L2(sum(dims), radius),
    "Ranked": lambda dims, radius: Ranked(sum(dims), HalfNormal(), radius),
    "Ranked, several profiles": lambda dims, radius: Ranked(sum(dims), Tails(), radius),
    "Ranked, sampled profiles": lambda dims, radius: Ranked(sum(dims), PaperGaussian(n=20), radius),
    "Ranked, blocks": lambda dims, radius: Ranked(sum(dims), _blocks(dims), radius),
    "Snap": lambda dims, radius: Snap(sum(dims), HalfNormal(), radius),
    "Snap, several profiles": lambda dims, radius: Snap(sum(dims), Tails(), radius),
    "Snap, blocks": lambda dims, radius: Snap(sum(dims), _blocks(dims), radius),
}


def _blocks(dims: tuple[int, ...]) -> Blocks:
    """A block for each parameter."""
    return Blocks(dims=dims, shares=(0.9 / len(dims),) * len(dims), profiles=Tails())


@dataclass(frozen=True)
class Case:
    """A model, a data set, an encoder, and the example `one` that is taken out."""

    model: str = "dense"
    encoder: str = "L2"
    radius: float = 1.0
    micro_batch: int = 1
    width: int = 4
    classes: int = 3  # two classes have opposite gradients: rounding would decide on their ranks
    examples: int = 8
    chunk: int = 3
    rate: float = 0.6
    stretch: float = 1.0
    one: int = 2
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.model}, {self.encoder}" + (f", {self.micro_batch}" if self.micro_batch > 1 else "")

    def network(self) -> nn.Module:
        model = MODELS[self.model][1](self.width, self.classes).double()
        generator = torch.Generator().manual_seed(self.seed)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape, dtype=p.dtype, generator=generator))
        return model

    def data(self) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(self.seed + 1)
        x = torch.randn(self.examples, *MODELS[self.model][0], dtype=torch.float64, generator=generator)
        x[self.one] *= self.stretch
        return x, torch.randint(self.classes, (self.examples,), generator=generator)

    def numbers(self) -> np.ndarray:
        """Two uniforms for each example, (examples, 2): does it join, and which group does it draw?"""
        return np.random.default_rng(self.seed).random((self.examples, 2))

    def made(self) -> Encoder:
        dims = tuple(p.numel() for p in self.network().parameters())
        return ENCODERS[self.encoder](dims, self.radius).replace(micro_batch=self.micro_batch)

    def own(self, index: list[int]) -> Tensor:
        """The gradients of some examples by one backward pass each, (len(index), dim)."""
        (x, y), model = self.data(), self.network()
        losses = (nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1]) for i in index)
        rows = [flat(torch.autograd.grad(loss, list(model.parameters()))) for loss in losses]
        return torch.stack(rows) if rows else torch.zeros(0, self.made().known_dim, dtype=torch.float64)


class Coupled:
    """Stands in for the sampler's generator in one step: first who joins, then the group of each who does."""

    def __init__(self, numbers: np.ndarray, rate: float) -> None:
        self._turns = iter((numbers[:, 0], numbers[numbers[:, 0] <= rate, 1]))

    def uniforms(self, n: int) -> np.ndarray:
        drawn = next(self._turns)
        assert len(drawn) == n
        return drawn

    def bernoulli(self, n: int, chance: float) -> np.ndarray:
        return self.uniforms(n) <= chance


def private_sum(case: Case, x: Tensor, y: Tensor, numbers: np.ndarray) -> Tensor:
    """The sum that a real run would release of this data, before noise."""
    mechanism = Mechanism(case.made(), Gaussian(1.0), case.rate, steps=1)
    private = make_private(case.network(), nn.CrossEntropyLoss(), (x, y), mechanism, chunk=case.chunk)
    private._sampling = Coupled(numbers, case.rate)  # type: ignore[assignment]
    return private._encode_batch_sum(mechanism).unsafe_values()


def move(case: Case) -> Tensor:
    """By how much the sum moves with the example; and taking it out is the same as making it a NaN."""
    (x, y), numbers = case.data(), case.numbers()
    others = [i for i in range(case.examples) if i != case.one]
    broken = x.clone()
    broken[case.one].flatten()[0] = torch.nan
    total = private_sum(case, x, y, numbers)
    gone = private_sum(case, x[others], y[others], numbers[others])
    _assert_close(private_sum(case, broken, y, numbers), gone, case)
    return total - gone


def _assert_close(found: Tensor, expected: Tensor, case: Case) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10 * case.radius)


def _inside(moved: Tensor, image: Image, case: Case) -> None:
    """Within the image, up to the rounding of sums: the encodings themselves are held to it exactly elsewhere."""
    table = moved[None] / (1 + 1e-9)
    table[table.abs() < 1e-10 * case.radius] = 0.0
    assert outside_image(table, image) == []


def check_one_encoding(case: Case) -> None:
    """With it, the sum has exactly its encoding more; where it did not join, nothing moves."""
    moved, encoder = move(case), case.made()
    joined = case.numbers()[case.one, 0] <= case.rate
    _assert_close(moved, encoder.encode(case.own([case.one]))[0] * joined, case)
    _inside(moved, encoder.image, case)


def check_micro_batches(case: Case) -> None:
    """One group's encoding turns into another one, no other group notices, and the move is in the widened image."""
    moved, encoder, numbers = move(case), case.made(), case.numbers()
    groups = max(1, round(case.rate * case.examples / case.micro_batch))
    drawn = np.minimum((numbers[:, 1] * groups).astype(int), groups - 1)
    members = np.flatnonzero((numbers[:, 0] <= case.rate) & (drawn == drawn[case.one])).tolist()
    expected = torch.zeros_like(moved)
    if case.one in members:
        rows = case.own(members) / case.micro_batch
        rest = rows[[i for i, member in enumerate(members) if member != case.one]]
        expected = encoder.encode(rows.sum(dim=0, keepdim=True))[0]
        if len(rest):
            expected = expected - encoder.encode(rest.sum(dim=0, keepdim=True))[0]
    _assert_close(moved, expected, case)
    _inside(moved, encoder.image, case)


CASES = st.builds(
    Case,
    model=st.sampled_from(list(MODELS)),
    encoder=st.sampled_from(list(ENCODERS)),
    radius=st.sampled_from([0.01, 1.0, 40.0]),
    width=st.integers(2, 5),
    classes=st.integers(3, 5),
    examples=st.integers(2, 9),
    chunk=st.integers(1, 9),
    rate=st.sampled_from([0.3, 0.6, 1.0]),
    stretch=st.sampled_from([1e-4, 1.0, 1e4]),
    one=st.integers(0, 1),
    seed=st.integers(0, 2**31),
)


@settings(max_examples=30)
@given(CASES)
def test_one_example_moves_the_sum_by_its_encoding(case: Case) -> None:
    check_one_encoding(case)


@settings(max_examples=30)
@given(CASES, st.integers(2, 3))
def test_with_micro_batches_it_turns_one_encoding_into_another(case: Case, micro_batch: int) -> None:
    case = replace(case, micro_batch=micro_batch)
    counts = {max(1, round(case.rate * n / micro_batch)) for n in (case.examples, case.examples - 1)}
    assume(len(counts) == 1)  # the number of groups comes from the public number of examples
    check_micro_batches(case)


@settings(max_examples=30)
@given(CASES)
def test_gradients_and_encoder_alone(case: Case) -> None:
    """The same without a run: each example in turn, the whole batch, whatever the chunks."""
    (x, y), encoder = case.data(), case.made()
    gradients = PerExampleGradients(case.network(), nn.CrossEntropyLoss(), chunk=case.chunk)

    def total(index: list[int]) -> Tensor:
        sums = [encoder.encode_sum(rows).unsafe_values() for rows in gradients.chunks((x[index], y[index]))]
        return torch.stack(sums).sum(dim=0)

    whole = list(range(case.examples))
    encoded, together = encoder.encode(case.own(whole)), total(whole)
    for one in whole:
        moved = together - total([i for i in whole if i != one])
        _assert_close(moved, encoded[one], case)
        _inside(moved, encoder.image, case)


@settings(max_examples=30)
@given(CASES)
def test_rows_of_32_bits(case: Case) -> None:
    """What most models have, and what a native kernel takes: the same bits of a row, alone and in company."""
    (x, y), encoder = case.data(), case.made()
    gradients = PerExampleGradients(case.network().float(), nn.CrossEntropyLoss(), chunk=case.examples)
    rows = next(gradients.chunks((x.float(), y))).clone()
    total = encoder.encode_sum(rows).unsafe_values()
    for one in range(case.examples):
        moved = total - encoder.encode_sum(torch.cat([rows[:one], rows[one + 1 :]])).unsafe_values()
        _assert_close(moved, encoder.encode_sum(rows[one : one + 1]).unsafe_values(), case)
        _inside(moved, encoder.image, case)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_with_the_library_s_own_generator(encoder: str) -> None:
    """The last example out: under one seed the others draw what they drew, since the stream is read in order."""
    case = Case(encoder=encoder, one=7, rate=0.5)
    (x, y), mechanism = case.data(), Mechanism(case.made(), Gaussian(1.0), case.rate, steps=8)
    own = mechanism.encoder.encode(case.own([case.one]))[0]
    runs = [
        make_private(case.network(), nn.CrossEntropyLoss(), (x[:n], y[:n]), mechanism, chunk=3)
        for n in (case.examples, case.examples - 1)
    ]
    joined = []
    for seed in range(8):
        for run in runs:
            run._sampling, run._stream = Generator(seed, purpose="sampling"), None  # a stream keeps its generator
        moved = torch.sub(*(run._encode_batch_sum(mechanism).unsafe_values() for run in runs))
        joined.append(bool(moved.abs().max() > 1e-9))
        _assert_close(moved, own * joined[-1], case)
    assert 0 < sum(joined) < 8, "it joins some batches and not others"


def test_dropout_does_not_follow_a_public_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under ``torch.manual_seed`` masks would go by position: one example more would change those of all after it."""
    x, y = torch.randn(40, 8, generator=torch.Generator().manual_seed(0)).double(), torch.zeros(40).long()
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 3)).double()
    mechanism = Mechanism(L2(dim=27), Gaussian(1.0), rate=1.0, steps=1)
    sums = watched(monkeypatch)
    for _ in range(2):
        torch.manual_seed(0)
        state = torch.get_rng_state()
        make_private(model, nn.CrossEntropyLoss(), (x, y), mechanism).step()
        assert torch.equal(torch.get_rng_state(), state), "and the user's own generator stands where it stood"
    assert not torch.allclose(sums[0], sums[1])
