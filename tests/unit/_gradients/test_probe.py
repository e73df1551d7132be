"""P3: no example has a say in another one's gradient; what mixes examples is refused."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from noisette._gradients import PerExampleGradients, SlowPath, probe
from noisette.errors import InvalidInput
from tests.support.gradient_models import CASES, SLOW, all_rows, reference
from tests.support.helpers import refused


class Mixer(nn.Module):
    """Two Linear layers with something across the batch in between."""

    def __init__(self, mix) -> None:
        super().__init__()
        self.mix, self.first, self.second = mix, nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.mix(torch.tanh(self.first(x))))


class OwnBatchNorm(nn.Module):
    """Statistics of the batch, written by hand, in training only, through functional dropout besides."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = F.dropout(self.first(x), 0.5, self.training)
        if self.training:
            h = h - h.mean(0) + h
        return self.second(h)


class Shifted(nn.Module):
    """Adds a mean over the batch that no derivative sees."""

    def forward(self, x: Tensor) -> Tensor:
        return x + x.detach().mean(0)


class TiedBackward(torch.autograd.Function):
    """The identity, whose derivative is the mean over the batch."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g.mean(0).expand_as(g)


def data(count: int = 6) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(count, 6), torch.randint(3, (count,))


MIXERS = {
    "minus the batch mean": lambda h: h - h.mean(0),
    "a thousandth of the batch mean": lambda h: h + 1e-3 * h.mean(0),
    "a detached mean": lambda h: h - h.mean(0).detach(),
    "over the batch norm": lambda h: h / h.norm(),
    "attention over the batch": lambda h: torch.softmax(h @ h.T, 1) @ h,
    "the neighbour": lambda h: h + 0.1 * h.roll(1, 0),
    "cumulative": lambda h: h.cumsum(0),
    "over the batch size": lambda h: h / len(h),
    "the rank in the batch": lambda h: h + h.argsort(0).argsort(0),
    "only the derivative": TiedBackward.apply,
    "noise and the batch mean": lambda h: h + torch.randn_like(h) - h.mean(0),
    "over the batch size, behind dropout": lambda h: F.dropout(h, 0.5) / len(h),
    "the gate of the largest": lambda h: h * (h == h.max(0).values),
}


@pytest.mark.parametrize("name", MIXERS)
def test_whatever_mixes_examples_is_refused(name: str) -> None:
    torch.manual_seed(0)
    model, (x, y) = Mixer(MIXERS[name]), data()
    with refused(InvalidInput, match="gradient in a batch differs.*Mixer"):
        PerExampleGradients(model, nn.CrossEntropyLoss()).check((x, y))
    with refused(InvalidInput, match="GroupNorm"):  # nobody has to ask for the check
        next(PerExampleGradients(model, nn.CrossEntropyLoss()).chunks((x, y)))
    with torch.no_grad(), refused(InvalidInput, match="GroupNorm"):
        next(PerExampleGradients(model, nn.CrossEntropyLoss()).chunks((x, y)))


class Single(nn.Module):
    """Goes on in float32, whatever comes."""

    def forward(self, x: Tensor) -> Tensor:
        return x.float()


def test_layers_of_two_precisions_pass_and_may_not_mix() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(6, 300).double(), data()[1]
    for mix in (nn.Identity(), Shifted()):
        model = nn.Sequential(nn.Linear(300, 300).double(), nn.Tanh(), Single(), mix, nn.Linear(300, 3))
        if isinstance(mix, Shifted):
            with refused(InvalidInput, match="in a batch differs"):
                PerExampleGradients(model, nn.CrossEntropyLoss()).check((x, y))
        else:
            PerExampleGradients(model, nn.CrossEntropyLoss()).check((x, y))


class Steep(nn.Module):
    """Makes rounding errors of a product thousands of times as large; `mix` comes behind."""

    def __init__(self, mix, *, single: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.mix, self.single = nn.Linear(500, 60), nn.Linear(60, 3), mix, single

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x.float() if self.single else x)
        return self.second(self.mix(torch.sin(2e4 * h)))


def test_rounding_is_told_from_mixing_in_double_precision() -> None:
    torch.manual_seed(0)
    x, y, loss = torch.rand(4, 500), torch.zeros(4, dtype=torch.long), nn.CrossEntropyLoss()
    model = Steep(nn.Identity())
    with torch.no_grad():
        apart = (model(x) - torch.cat([model(x[i : i + 1]) for i in range(4)])).abs().max()
    assert apart > 1e-3, "batch and example must round differently for this to test anything"
    gradients = PerExampleGradients(model, loss)
    with probe.dropout_disabled(gradients._aim, gradients.device):
        found = probe.confirmed(gradients._aim, gradients._layout, gradients._fast, (x, y))
    assert type(found).__name__ == "Layers"
    for refused_one in (Steep(Shifted()), Steep(lambda h: h / len(h)), Steep(TiedBackward.apply)):
        with refused(InvalidInput, match="in a batch differs"):
            PerExampleGradients(refused_one, loss).check((x, y))
    with refused(InvalidInput, match="in a batch differs"):  # it cannot be had in double precision
        PerExampleGradients(Steep(nn.Identity(), single=True), loss).check((x, y))


def test_mixing_that_shows_in_outputs_only_is_refused() -> None:
    def linear_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.sum()

    x, y = data()
    sound, mixing = nn.Linear(6, 3), nn.Sequential(nn.Linear(6, 3), Shifted())
    PerExampleGradients(sound, linear_loss).check((x, y))
    with refused(InvalidInput, match="in a batch differs"):
        PerExampleGradients(mixing, linear_loss).check((x, y))


def test_an_output_as_wide_as_the_batch_is_refused() -> None:
    class Wide(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)[:, : len(x) + 1]

    x, y = data()
    with refused(InvalidInput, match="in a batch differs"):
        PerExampleGradients(Wide(6, 6), nn.CrossEntropyLoss()).check((x, y.clamp(max=1)))


def test_a_model_that_works_in_place_on_its_input_passes() -> None:
    class Doubling(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.mul_(2))

    x, y = data()
    before = x.clone()
    PerExampleGradients(Doubling(6, 3), nn.CrossEntropyLoss()).check((x, y))
    assert torch.equal(x, before)


@pytest.mark.parametrize("rnn", [nn.LSTM, nn.GRU])
def test_the_size_of_the_batch_shows_behind_the_dropout_of_a_recurrent_layer(rnn: type[nn.RNNBase]) -> None:
    class Net(nn.Module):
        def __init__(self, sized: bool) -> None:
            super().__init__()
            self.rnn, self.head, self.sized = rnn(6, 6, 2, dropout=0.5, batch_first=True), nn.Linear(6, 3), sized

        def forward(self, x: Tensor) -> Tensor:
            h = self.rnn(x[:, None])[0][:, 0]
            return self.head(h / len(h) if self.sized else h)

    x, y = data()
    PerExampleGradients(Net(False), nn.CrossEntropyLoss()).check((x, y))
    with refused(InvalidInput, match="in a batch differs"):
        PerExampleGradients(Net(True), nn.CrossEntropyLoss()).check((x, y))


@pytest.mark.parametrize("name", [name for name in MIXERS if "noise" not in name and "dropout" not in name])
def test_without_the_check_examples_stay_alone(name: str) -> None:
    """Isolation does not rest on the check: every way gives an example what it has alone, or does not fit."""
    torch.manual_seed(0)
    model, (x, y) = Mixer(MIXERS[name]).double(), data()
    gradients = PerExampleGradients(model, nn.CrossEntropyLoss())
    alone = reference(model, nn.CrossEntropyLoss(), x.double(), y)
    for way in (*gradients._fast, *gradients._general):
        rows = torch.empty(6, gradients.dim, dtype=torch.float64)
        try:
            way.rows((x.double(), y), rows)
        except RuntimeError:
            continue
        torch.testing.assert_close(rows, alone)


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(6),
        nn.BatchNorm1d(6, affine=False),
        nn.BatchNorm1d(6, track_running_stats=False),
        nn.BatchNorm1d(6, track_running_stats=False).eval(),
        nn.SyncBatchNorm(6),
        nn.Sequential(nn.Unflatten(1, (2, 3)), nn.InstanceNorm1d(2, track_running_stats=True), nn.Flatten()),
    ],
    ids=str,
)
def test_batch_norm_is_refused_by_name(layer: nn.Module) -> None:
    model, (x, y) = nn.Sequential(nn.Linear(6, 6), layer, nn.Linear(6, 3)), data()
    gradients = PerExampleGradients(model, nn.CrossEntropyLoss())
    for attempt in (gradients.check, gradients.chunks):
        with refused(InvalidInput, match=r"Norm.* at '1.*\n\nhint: replace it by GroupNorm"):
            attempt((x, y))
    with refused(InvalidInput, match="GroupNorm"):
        gradients.chunks((x[:0], y[:0]))  # an empty batch is no excuse


def test_batch_norm_in_eval_mode_is_allowed_until_it_trains() -> None:
    model, (x, y) = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6, affine=False), nn.Linear(6, 3)).double(), data()
    model.eval()
    gradients = PerExampleGradients(model, nn.CrossEntropyLoss())
    torch.testing.assert_close(
        all_rows(gradients, x.double(), y), reference(model, nn.CrossEntropyLoss(), x.double(), y)
    )
    assert gradients.path == "layers"
    model.train()
    with refused(InvalidInput, match="BatchNorm1d at '1'"):
        gradients.chunks((x.double(), y))


def test_a_mode_that_was_not_checked_is_checked() -> None:
    model, (x, y) = OwnBatchNorm(), data()
    gradients = PerExampleGradients(model.eval(), nn.CrossEntropyLoss())
    gradients.check((x, y))
    assert gradients.path == "layers"
    model.train()
    with refused(InvalidInput, match="OwnBatchNorm"):
        next(gradients.chunks((x, y)))


@pytest.mark.filterwarnings("ignore::noisette._gradients.SlowPath")
@pytest.mark.parametrize("name", [*CASES, *SLOW])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_does_not_mix_passes(name: str, dtype: torch.dtype) -> None:
    case = {**CASES, **SLOW}[name]
    model, x, y = case.build()
    x = x.to(dtype) if x.is_floating_point() else x
    PerExampleGradients(model.to(dtype), case.loss).check((x, y))


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 3)),
        nn.Sequential(nn.Linear(6, 6), nn.AlphaDropout(0.5), nn.Linear(6, 3)),
        nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Dropout1d(0.5), nn.Flatten(), nn.Linear(6, 3)),
        nn.Sequential(
            nn.Unflatten(1, (1, 6)), nn.TransformerEncoderLayer(6, 2, 8, 0.5, batch_first=True), nn.Flatten()
        ),
        Mixer(lambda h: F.dropout(h, 0.5)),
        Mixer(lambda h: h + torch.randn_like(h)),
        Mixer(lambda h: checkpoint(lambda inner: F.dropout(inner, 0.5).square(), h, use_reentrant=False)),
    ],
    ids=["module", "alpha", "channels", "transformer", "function", "noise", "computed again"],
)
def test_randomness_is_no_mixing(model: nn.Module) -> None:
    x, y = data()
    state = torch.get_rng_state()
    PerExampleGradients(model, nn.CrossEntropyLoss()).check((x, y))
    assert torch.equal(torch.get_rng_state(), state)


def test_two_threads_take_turns() -> None:
    """Torch's generators and switches are the process's: two runs at once would leave each other's behind."""
    found = list[bool]()

    def ask() -> None:
        found.append(probe._ALONE.acquire(blocking=False))
        if found[-1]:
            probe._ALONE.release()

    def asked() -> bool:
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        return found[-1]

    with probe.isolated_rng(torch.device("cpu")):
        with probe.isolated_rng(torch.device("cpu")):  # a thread does not wait for itself
            assert not asked()
        assert not asked()
    assert asked()


def test_the_check_leaves_the_model_as_it_was() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.drop, self.head = (
                nn.LSTM(6, 6, 2, dropout=0.5, batch_first=True),
                nn.Dropout(),
                nn.Linear(6, 3),
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.drop(self.lstm(x[:, None])[0][:, 0]))

    model, (x, y) = Net(), data()
    model.drop.eval()
    before = [p.clone() for p in model.parameters()]
    PerExampleGradients(model, nn.CrossEntropyLoss()).check((x, y))
    assert model.lstm.dropout == 0.5
    assert [m.training for m in model.modules()] == [True, True, False, True]
    assert all(p.grad is None and torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_the_check_sees_shapes_only() -> None:
    """Whether a model is refused, and which way it goes, must not hang on private examples: NaN, or none at all."""
    torch.manual_seed(0)
    x, y = data()
    for examples, targets in ((x * torch.nan, y), (x[:0], y[:0]), (x[:1].expand(6, 6), y)):
        gradients = PerExampleGradients(nn.Linear(6, 3), nn.CrossEntropyLoss())
        gradients.check((examples, targets))
        assert gradients.path == "layers"
        with refused(InvalidInput, match="in a batch differs"):
            PerExampleGradients(Mixer(MIXERS["minus the batch mean"]), nn.CrossEntropyLoss()).check((examples, targets))


def test_an_output_without_a_row_for_each_example_is_refused() -> None:
    x, y = data()
    for model in (nn.Sequential(nn.Linear(6, 3), nn.Flatten(0)), nn.Sequential(nn.Unflatten(1, (1, 6)), nn.GRU(6, 3))):
        with refused(InvalidInput, match="no row for each example"):
            PerExampleGradients(model, nn.CrossEntropyLoss()).check((x, y))


@pytest.mark.parametrize("name", ["mnist-paper", "mlp", "conv2d, residual", "group norm", "attention", "gru"])
def test_a_row_does_not_change_with_the_company(name: str) -> None:
    """Every row among others equals, to rounding, the row of the example alone and among other others."""
    case = {**CASES, **SLOW}[name]
    model, x, y = case.build(count=8)
    gradients = PerExampleGradients(model, case.loss)
    if case.path == "loop":
        with pytest.warns(SlowPath):
            full = all_rows(gradients, x, y)
    else:
        full = all_rows(gradients, x, y)
    order = [5, 2, 7]
    torch.testing.assert_close(all_rows(gradients, x[order], y[order]), full[order], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(all_rows(gradients, x[4:5], y[4:5]), full[4:5], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, 1e300])
@pytest.mark.parametrize("name", ["mnist-paper", "mlp", "conv2d, viewed", "group norm", "attention"])
def test_a_broken_example_spoils_its_own_row_only(name: str, broken: float) -> None:
    case = CASES[name]
    model, x, y = case.build(count=6)
    gradients = PerExampleGradients(model, case.loss)
    full = all_rows(gradients, x, y)
    x[2] = broken
    rows = all_rows(gradients, x, y)
    others = [0, 1, 3, 4, 5]
    assert torch.equal(rows[others], full[others])
    assert not torch.equal(rows[2], full[2])
    fresh = PerExampleGradients(model, case.loss)  # whose isolation check meets the broken example
    torch.testing.assert_close(all_rows(fresh, x, y)[others], full[others], rtol=1e-10, atol=1e-12)


def test_a_model_that_is_fitted_passes() -> None:
    """Its gradients are rounding errors, which are not taken for mixing."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(500, 300), nn.Tanh(), nn.Linear(300, 3)), torch.randn(4, 500)
    y = torch.cat([model(x[i : i + 1]).detach() for i in range(4)])
    assert not torch.equal(model(x), y), "batch and example must round differently for this to test anything"
    gradients = PerExampleGradients(model, nn.MSELoss())
    gradients.check((x, y))
    assert gradients.path == "layers"


def test_an_output_that_cancels_out_passes() -> None:
    """It is a rounding error of its terms, which is not taken for mixing."""
    torch.manual_seed(0)
    model, x, y = nn.Linear(500, 1, bias=False), torch.randn(4, 500), torch.zeros(4, 1)
    direction = model.weight.detach()[0].double() / model.weight.detach().double().norm()
    x = (x.double() - (x.double() @ direction)[:, None] * direction).float()
    x[3] += direction.float()
    with torch.no_grad():
        alone = torch.cat([model(x[i : i + 1]) for i in range(4)])
        assert not torch.equal(model(x), alone), "batch and example must round differently for this to test anything"
    PerExampleGradients(model, nn.MSELoss()).check((x, y))


@pytest.mark.filterwarnings("ignore::noisette._gradients.Inexact")  # nothing can be shown of what is not finite
@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_model_without_finite_outputs_passes(broken: float) -> None:
    """Nothing is mixed, and gradients that are not finite count as zero: no example can stop a training this way."""
    model, (x, y) = nn.Linear(6, 3), data()
    with torch.no_grad():
        model.weight[0, 0] = broken
    PerExampleGradients(model, nn.CrossEntropyLoss()).check((x, y))


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
@pytest.mark.parametrize(
    "mix",
    [lambda h: h / len(h), lambda h: h + h.detach().mean(0)],
    ids=["over the batch size, as among copies", "in outputs only"],
)
def test_an_output_that_is_not_finite_hides_no_mixing(mix, broken: float) -> None:
    class Hidden(nn.Module):
        """Mixes, and gives nothing finite where an input is large."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.where(x[:, :1] > 1e9, broken, mix(self.layer(x)))

    x, y = data()
    x[0, 0] = 1e10
    with refused(InvalidInput, match="in a batch differs"):
        PerExampleGradients(Hidden(), lambda outputs, _: outputs.sum()).check((x, y))
