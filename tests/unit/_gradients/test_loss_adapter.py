"""Objectives of all kinds give every example the gradient that it has alone; what averages over a batch is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette import Mechanism, make_private
from noisette._gradients import PerExampleGradients
from noisette._pytree import rows, size
from noisette.encoders import L2
from noisette.errors import InvalidInput
from noisette.noise import Gaussian
from noisette.objectives import TokenCrossEntropy, classification, model_loss, per_example
from tests.support.helpers import refused

COUNT, WIDTH, TOKENS, WORDS = 6, 5, 4, 9


@dataclass
class Outputs:
    """As the models of transformers give them."""

    logits: Tensor
    loss: Tensor | None = None


class Reader(nn.Module):
    """Words through an embedding; the mean over those that the mask shows, or each by itself. Computes its own loss."""

    def __init__(self, classes: int, *, each: bool = False) -> None:
        super().__init__()
        self.words, self.head, self.each = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, classes), each

    def forward(self, tokens: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> Outputs:
        h = torch.tanh(self.words(tokens))
        if not self.each:
            shown = attention_mask.unsqueeze(-1).to(h.dtype)
            h = (h * shown).sum(1) / shown.sum(1).clamp(min=1)
        logits = self.head(h)
        loss = None if labels is None else F.cross_entropy(logits.flatten(0, -2), labels.flatten())
        return Outputs(logits, loss)


def sentences(classes: int = 3, *, each: bool = False) -> dict[str, Tensor]:
    made = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, TOKENS + 1, (COUNT, 1), generator=made)
    labels = torch.randint(classes, (COUNT, TOKENS) if each else (COUNT,), generator=made)
    return {
        "tokens": torch.randint(WORDS, (COUNT, TOKENS), generator=made),
        "attention_mask": (torch.arange(TOKENS) < lengths).long(),
        "labels": labels,
    }


def alone_gradients(model: nn.Module, loss_of: Callable[[Any], Tensor], batch: Any) -> Tensor:
    """One ordinary backward pass for each example."""
    found = []
    for i in range(size(batch)):
        model.zero_grad(set_to_none=True)
        loss_of(rows(batch, slice(i, i + 1))).sum().backward()
        found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    model.zero_grad(set_to_none=True)
    return torch.stack(found)


def agree(model: nn.Module, goal: Any, batch: Any, loss_of: Callable[[Any], Tensor]) -> PerExampleGradients:
    gradients = PerExampleGradients(model, goal, chunk=4)
    found = torch.cat([chunk.clone() for chunk in gradients.chunks(batch)])
    torch.testing.assert_close(found, alone_gradients(model, loss_of, batch), rtol=1e-9, atol=1e-12)
    return gradients


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def test_a_dict_with_an_attention_mask() -> None:
    model, batch = Reader(3).double(), sentences()
    gradients = agree(model, classification, batch, lambda one: model(**one).loss)
    assert gradients.path == "layers"


def test_keyword_arguments_with_an_ordinary_loss() -> None:
    model, batch = Reader(3).double(), sentences()
    labels = batch.pop("labels")

    def loss(outputs: Outputs | Any, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, **inputs: Tensor) -> Tensor:
            return self.inner(**inputs).logits

    whole = Logits()
    agree(whole, loss, (batch, labels), lambda one: loss(whole(**one[0]), one[1]))


def test_several_inputs_in_a_tuple() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 2), nn.Linear(4, 2)

        def forward(self, x: Tensor, z: Tensor) -> Tensor:
            return torch.tanh(self.a(x)) * self.b(z)

    model = Both().double()
    batch = ((torch.randn(6, 3).double(), torch.randn(6, 4).double()), torch.randint(2, (6,)))
    gradients = agree(model, nn.CrossEntropyLoss(), batch, lambda one: F.cross_entropy(model(*one[0]), one[1]))
    assert gradients.path == "layers"


def test_a_model_that_returns_its_own_loss() -> None:
    model, batch = Reader(3).double(), sentences()
    agree(model, model_loss, batch, lambda one: model(**one).loss)


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("ahead", [0, 1])
def test_tokens_with_some_that_do_not_count(mean: bool, ahead: int) -> None:
    model, batch = Reader(WORDS, each=True).double(), sentences(WORDS, each=True)
    batch["labels"][batch["attention_mask"] == 0] = -100
    batch["labels"][0] = -100  # an example of which nothing counts has no gradient

    def expected(one: dict[str, Tensor]) -> Tensor:
        logits = model(one["tokens"], one["attention_mask"]).logits[0][: TOKENS - ahead]
        losses = [
            F.cross_entropy(row, label)
            for row, label in zip(logits, one["labels"][0][ahead:], strict=True)
            if label >= 0
        ]
        return sum(losses, 0 * logits.sum()) / (max(1, len(losses)) if mean else 1)

    agree(model, TokenCrossEntropy(ahead=ahead, mean=mean), batch, expected)


def test_regression() -> None:
    model, batch = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double(), None
    batch = (torch.randn(6, 3).double(), torch.randn(6, 1).double())
    gradients = agree(model, nn.MSELoss(), batch, lambda one: F.mse_loss(model(one[0]), one[1]))
    assert gradients.path == "layers"


def test_several_labels_an_example() -> None:
    model = nn.Linear(3, 4).double()
    batch = (torch.randn(6, 3).double(), torch.randint(2, (6, 4)).double())
    agree(model, nn.BCEWithLogitsLoss(), batch, lambda one: F.binary_cross_entropy_with_logits(model(one[0]), one[1]))
    named = {"x": batch[0], "labels": batch[1]}

    class Logits(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            return SimpleNamespace(logits=super().forward(x))

    other = Logits(3, 4).double()
    agree(
        other,
        classification,
        named,
        lambda one: F.binary_cross_entropy_with_logits(other(one["x"]).logits, one["labels"]),
    )


def test_class_weights() -> None:
    model, weight = nn.Linear(3, 2).double(), torch.tensor([1.0, 5.0]).double()
    batch = (torch.randn(6, 3).double(), torch.tensor([0, 1, 0, 1, 1, 0]))

    def share(one: Any) -> Tensor:
        return weight[one[1]] * F.cross_entropy(model(one[0]), one[1])

    agree(model, nn.CrossEntropyLoss(weight=weight), batch, share)


def test_class_weights_in_a_function_are_refused() -> None:
    """Their mean is over weights, which a batch of one divides away: they would silently have no effect."""

    def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, weight=torch.tensor([1.0, 5.0]))

    with refused(InvalidInput, match=r"not the mean or the sum.*\n\n.*CrossEntropyLoss\(weight="):
        PerExampleGradients(nn.Linear(3, 2), weighted).check((torch.randn(6, 3), torch.zeros(6).long()))


@pytest.mark.parametrize("way", ["no targets", "an objective"])
def test_an_autoencoder(way: str) -> None:
    class Coder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up = nn.Linear(4, 2), nn.Linear(2, 4)

        def forward(self, x: Tensor) -> Tensor:
            return (self.up(torch.tanh(self.down(x))) - x) if way == "no targets" else self.up(torch.tanh(self.down(x)))

    model, x = Coder().double(), torch.randn(6, 4).double()
    if way == "no targets":
        gradients = agree(
            model, lambda gap, _: gap.square().mean(), (x, None), lambda one: model(one[0]).square().mean()
        )
    else:
        gradients = agree(
            model, lambda model, x: (model(x) - x).square().mean(1), x, lambda one: (model(one) - one).square().mean()
        )
    assert gradients.path == "layers"


def test_an_objective_may_call_parts_of_the_model() -> None:
    model = nn.ModuleDict({"body": nn.Linear(4, 3), "head": nn.Linear(3, 2)}).double()
    batch = {"x": torch.randn(6, 4).double(), "y": torch.randint(2, (6,))}

    def objective(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        h = torch.tanh(model["body"](batch["x"]))
        return F.cross_entropy(model["head"](h), batch["y"], reduction="none") + h.square().sum(1)

    assert agree(model, objective, batch, lambda one: objective(model, one)).path == "layers"


# -- what is refused ---------------------------------------------------------------------------------------------------

PAIR = (torch.randn(6, 3), torch.randint(2, (6,)))


@pytest.mark.parametrize(
    "objective",
    [
        lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]),
        lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]).expand(2),
        lambda model, batch: model(batch[0]),
        lambda model, batch: float(model(batch[0]).sum()),
    ],
    ids=["a mean", "of another length", "rows", "no tensor"],
)
def test_an_objective_that_gives_something_else_is_refused(objective: Any) -> None:
    with refused(InvalidInput, match=r"not one loss for each example.*\n\n.*per_example"):
        PerExampleGradients(nn.Linear(3, 2), objective).check(PAIR)


@pytest.mark.parametrize(
    "objective",
    [
        lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]).expand(len(batch[0])),
        lambda model, batch: F.cross_entropy(model(batch[0]) - model(batch[0]).mean(0), batch[1], reduction="none"),
        lambda model, batch: F.cross_entropy(model(batch[0]), batch[1], reduction="none") / len(batch[0]),
        lambda model, batch: F.cross_entropy((o := model(batch[0])) @ o.T, torch.arange(len(o)), reduction="none"),
    ],
    ids=["the mean for everybody", "centred", "over the batch size", "contrastive"],
)
def test_an_objective_that_mixes_examples_is_refused(objective: Any) -> None:
    with refused(InvalidInput, match=r"gradient in a batch differs.*\n\nhint: is it the objective that compares"):
        PerExampleGradients(nn.Linear(3, 2), objective).check(PAIR)


def info_nce(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.normalize(outputs) @ F.normalize(outputs).T / 0.1, torch.arange(len(outputs)))


def triplets(outputs: Tensor, targets: Tensor) -> Tensor:
    """Pulls those of the same label together and pushes others apart."""
    distance = torch.cdist(outputs, outputs)
    same = targets[:, None] == targets[None]
    return torch.where(same, distance.square(), F.relu(1 - distance).square()).mean()


def correlation(outputs: Tensor, targets: Tensor) -> Tensor:
    centred = outputs[:, 0] - outputs[:, 0].mean()
    return -(centred * targets).sum() / (centred.norm() + 1e-6)


@pytest.mark.parametrize("loss", [info_nce, triplets, correlation], ids=lambda loss: loss.__name__)
def test_a_loss_that_contrasts_examples_is_refused(loss: Any) -> None:
    """In a batch of one it has nothing to contrast: its gradient would be zero, or another one."""
    with refused(InvalidInput, match=r"not the mean or the sum.*\n\n.*contrast"):
        PerExampleGradients(nn.Linear(3, 2), loss).check(PAIR)


@pytest.mark.filterwarnings("ignore::noisette._gradients.SlowPath")
@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(reduction="sum"),
        nn.CrossEntropyLoss(reduction="none"),
        nn.CrossEntropyLoss(ignore_index=0),
        nn.CrossEntropyLoss(ignore_index=1),
        nn.CrossEntropyLoss(weight=torch.tensor([0.2, 3.0])),
        nn.CrossEntropyLoss(label_smoothing=0.1),
        nn.MultiMarginLoss(),
        lambda outputs, targets: F.cross_entropy(outputs, targets, reduction="sum") / 7,
        lambda outputs, targets: F.cross_entropy(outputs, targets) if len(outputs) == 1 else 1 / 0,
    ],
    ids=lambda loss: repr(loss)[:40] if isinstance(loss, nn.Module) else "function",
)
def test_losses_that_are_shared_pass(loss: Any) -> None:
    PerExampleGradients(nn.Linear(3, 2), loss).check(PAIR)


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("column", ["outputs", "targets"])
def test_a_column_beside_a_row_of_numbers_is_told(column: str) -> None:
    """Torch compares every output with every target, which is never meant."""
    model = nn.Linear(3, 1) if column == "outputs" else nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
    targets = torch.zeros(6) if column == "outputs" else torch.zeros(6, 1)
    with refused(InvalidInput, match=r"\n\nhint: an output has the shape \(.*view_as\(outputs\)"):
        PerExampleGradients(model, nn.MSELoss()).check((PAIR[0], targets))


@pytest.mark.parametrize(
    "goal",
    [
        lambda outputs, targets: F.cross_entropy(outputs, targets).item(),
        lambda outputs, targets: (F.cross_entropy(outputs, targets), outputs),
        per_example(lambda model, batch: float(model(batch[0]).sum())),
    ],
    ids=["a float", "a tuple", "a float of one alone"],
)
def test_a_loss_that_is_no_tensor_is_refused(goal: Any) -> None:
    with refused(InvalidInput, match=r"of type (float|tuple), not a Tensor.*\n\n.*the loss alone"):
        PerExampleGradients(nn.Linear(3, 2), goal).check(PAIR)


def test_a_batch_that_is_no_pair_needs_an_objective() -> None:
    with refused(InvalidInput, match=r"batches of \(inputs, targets\)"):
        PerExampleGradients(nn.Linear(3, 2), nn.CrossEntropyLoss()).check({"x": PAIR[0]})
    with refused(InvalidInput, match=r"objective\(model, batch\), whose first parameter is called model"):
        PerExampleGradients(nn.Linear(3, 2), lambda net, batch: net(batch)).check(PAIR[0])


def test_alone_may_return_one_number() -> None:
    model = nn.Linear(3, 2).double()
    batch = (PAIR[0].double(), PAIR[1])

    def mean(model: nn.Module, batch: Any) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    agree(model, per_example(mean), batch, lambda one: mean(model, one))


def test_a_loss_that_no_parameter_enters_is_refused() -> None:
    with refused(InvalidInput, match="does not depend on any trained parameter"):
        PerExampleGradients(nn.Linear(3, 2), lambda outputs, targets: outputs.detach().sum()).check(PAIR)


def test_labels_of_one_class_are_made_up() -> None:
    """Where there is no class 1, the made-up label 1 does not count against the model."""
    PerExampleGradients(nn.Linear(3, 1), nn.NLLLoss()).check((PAIR[0], torch.zeros(6).long()))


class Towers(nn.Module):
    """Two views of an example, each in the same space."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 4), nn.Linear(5, 4)
        self.temperature = nn.Parameter(torch.zeros(()))

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        one, other = F.normalize(self.one(one), dim=1), F.normalize(self.other(other), dim=1)
        return one @ other.T * self.temperature.exp()


def clip(model: nn.Module, batch: Any) -> Tensor:
    scores = model(*batch)
    return (
        F.cross_entropy(scores, torch.arange(len(scores))) + F.cross_entropy(scores.T, torch.arange(len(scores)))
    ) / 2


def by_hand(model: nn.Module, batch: Any) -> Tensor:
    """Whose derivative is zero up to rounding."""
    scores = (model(*batch) / 0.07).exp()
    return -(scores.diag() / scores.sum(1)).log().mean()


def of_triplets(model: nn.Module, batch: Any) -> Tensor:
    scores = model(*batch)
    return F.relu(1 + scores - scores.diag()[:, None])[~torch.eye(len(scores), dtype=torch.bool)].sum()


@pytest.mark.parametrize("objective", [clip, by_hand, of_triplets])
def test_a_loss_that_is_constant_for_one_example_is_refused(objective: Any) -> None:
    pairs = torch.rand(6, 3), torch.rand(6, 5)
    with refused(InvalidInput, match=r"one example alone has no gradient.*\n\n.*contrastive"):
        PerExampleGradients(Towers(), per_example(objective)).check(pairs)


def test_one_class_alone_is_refused() -> None:
    with refused(InvalidInput, match=r"one example alone has no gradient.*\n\n.*softmax over one class"):
        PerExampleGradients(nn.Linear(3, 1), nn.CrossEntropyLoss()).check((PAIR[0], torch.zeros(6).long()))


def test_a_loss_that_is_small_or_that_has_reached_its_least_is_not_constant() -> None:
    PerExampleGradients(nn.Linear(3, 2), lambda outputs, targets: F.cross_entropy(outputs, targets) / 1e7).check(PAIR)
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.bias.copy_(torch.tensor([9.0, -9.0]))
    PerExampleGradients(model, lambda outputs, targets: F.relu(1 - outputs[:, 0] + outputs[:, 1]).mean()).check(PAIR)


class Noisy(nn.Linear):
    """Computes its own loss behind noise, by other functions in turn; may contrast examples besides."""

    def __init__(self, *, contrast: bool = False) -> None:
        super().__init__(3, 2)
        self.contrast = contrast

    def forward(self, x: Tensor) -> Outputs:
        x = x + torch.randn_like(x) + torch.zeros_like(x).uniform_(-2, 2) + torch.rand(len(x), 1) + x.clone().normal_(1)
        logits = super().forward(x)
        return Outputs(logits, (logits - logits.mean(0) if self.contrast else logits).square().mean())


def test_a_loss_behind_noise_is_not_taken_for_a_contrast() -> None:
    PerExampleGradients(Noisy(), model_loss).check({"x": PAIR[0]})
    with refused(InvalidInput, match="not made of the losses of its examples"):
        PerExampleGradients(Noisy(contrast=True), model_loss).check({"x": PAIR[0]})


@pytest.mark.filterwarnings("ignore::noisette._gradients.Inexact")
def test_noise_is_no_rounding() -> None:
    """A GAN's generator is given noise: where it cannot be compared, that is what the warning says."""

    def fakes(draw: Callable[[Tensor], Tensor]) -> Any:
        return lambda model, x: F.softplus(-model(x)).sum(1) + F.softplus(model(torch.tanh(draw(x)))).sum(1)

    for draw, told in ((torch.randn_like, None), (lambda x: x.clone().exponential_(), "draws random numbers by other")):
        gradients = PerExampleGradients(nn.Linear(3, 1), fakes(draw))
        gradients.check(PAIR[0])
        assert gradients.inexact is None if told is None else told in (gradients.inexact or "")


def test_a_generator_is_trained_by_its_own_loop() -> None:
    """The way out that the refusal names."""
    torch.manual_seed(0)
    critic, generator = nn.Linear(3, 1), nn.Linear(2, 3)

    def objective(model: nn.Module, x: Tensor) -> Tensor:
        fakes = generator(torch.randn(len(x), 2))
        return F.softplus(-model(x)).sum(1) + F.softplus(model(fakes)).sum(1)

    given = critic, objective, PAIR[0], Mechanism(L2(), Gaussian(scale=1.0), rate=0.5, steps=3)
    with refused(InvalidInput, match=r"Linear has parameters.*\n\n.*generator of a GAN.*torch\.autograd\.grad"):
        make_private(*given)
    generator.requires_grad_(False)
    before = generator.weight.clone()
    optimizer, other = (torch.optim.SGD(model.parameters(), lr=0.1) for model in (critic, generator))
    for _ in (private := make_private(*given)):
        optimizer.step()
        generator.requires_grad_(True)
        loss = F.softplus(-critic(generator(torch.randn(8, 2)))).mean()
        for p, found in zip(generator.parameters(), torch.autograd.grad(loss, [*generator.parameters()]), strict=True):
            p.grad = found
        generator.requires_grad_(False)
        other.step()
    assert not torch.equal(generator.weight, before)
    assert "inexact" not in private.guarantee(delta=1e-3).flags
