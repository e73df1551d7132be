"""PrivateTrainer, with the real Trainer, peft and models from small configs: private steps, checkpoints, refusals."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset

from noisette import Mechanism, guarantee, read_ledger
from noisette._gradients import SlowPath, grad_forms, rules
from noisette.encoders import L2
from noisette.errors import BudgetSpent, InvalidInput, MechanismMismatch
from noisette.integrations.transformers import PrivateTrainer
from noisette.noise import Gaussian
from noisette.objectives import classification
from noisette.training import private_run
from tests.integrations.test_transformer_models import GOALS, WORDS, adapted, batch_of, model_of
from tests.support.helpers import refused

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
EXAMPLES = 30


class Rows(Dataset[dict[str, Tensor]]):
    """Examples one by one, with a column that no model takes."""

    def __init__(self, name: str, count: int = EXAMPLES) -> None:
        self.batch = batch_of(name, count, torch.float32)

    def __len__(self) -> int:
        return len(self.batch["labels"])

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {"note": "not for the model", **{name: part[number] for name, part in self.batch.items()}}


def trainer_of(folder: Path, name: str = "bert", model: Any = None, **given: Any) -> PrivateTrainer:
    """Five steps, or ``max_steps``; `given` are arguments of the training, or of the trainer."""
    options: dict[str, Any] = {"per_device_train_batch_size": 6, "num_train_epochs": 1, "save_strategy": "no"}
    own = {"mechanism", "epsilon", "delta", "goal", "ledger", "callbacks", "data_collator", "compute_loss_func"}
    own |= {"encoder", "noise", "model_init", "train_dataset", "cls", "eval_dataset"}
    asked = {key: given.pop(key) for key in list(given) if key in own}
    quiet = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "logging_steps": 1}
    arguments = transformers.TrainingArguments(str(folder), **{**quiet, **options, **given})
    budget: dict[str, Any] = {"delta": 1e-3}
    if "mechanism" not in asked and "epsilon" not in asked:  # which takes a while to plan
        budget["mechanism"] = Mechanism(L2(), Gaussian(scale=1.0), rate=0.2, steps=given.get("max_steps", 5))
    if "model_init" not in asked:
        asked["model"] = model if model is not None else copy.deepcopy(model_of(name)).float()
    cls = asked.pop("cls", PrivateTrainer)
    return cls(args=arguments, **{"train_dataset": Rows(name), "eval_dataset": Rows(name), **budget, **asked})


SOME = {("bert", model_of), ("gpt2", adapted), ("vit", adapted)}


@pytest.mark.parametrize(
    ("name", "of"),
    [
        pytest.param(name, of, id=f"{name}-{of.__name__}", marks=[] if (name, of) in SOME else [pytest.mark.slow])
        for name in GOALS
        for of in (model_of, adapted)
    ],
)
def test_every_model_trains(name: str, of: Any, tmp_path: Path) -> None:
    """Two steps on the fast path, of which nobody is told that it is slow, with a mask where there is one."""
    trainer = trainer_of(tmp_path, name, copy.deepcopy(of(name)).float(), max_steps=2, learning_rate=0.1)
    before = {label: p.detach().clone() for label, p in trainer.model.named_parameters()}
    result = trainer.train()
    assert result.global_step == 2
    assert trainer.private._gradients.path == "layers"
    for label, p in trainer.model.named_parameters():
        assert torch.equal(p, before[label]) != p.requires_grad, label
    assert read_ledger(tmp_path / "ledger.jsonl").guarantee(1e-3).epsilon == trainer.guarantee().epsilon


def test_mixed_precision_goes_the_fast_way(tmp_path: Path) -> None:
    """Accelerate puts bf16 into the forward of the model; the sum of a step stays within its bound all the same."""
    mechanism = Mechanism(L2(radius=1e-3), Gaussian(scale=1.0), rate=1.0, steps=1)
    trainer = trainer_of(
        tmp_path, train_dataset=Subset(Rows("bert"), [0]), mechanism=mechanism, bf16=True, max_grad_norm=0.0
    )
    seen = list[float]()
    monitor = private_run.release

    def noted(mechanism: Mechanism, total: Any, **given: Any) -> Any:
        seen.append(float(total.unsafe_values().norm()))
        return monitor(mechanism, total, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(private_run, "release", noted)
        with warnings.catch_warnings(action="ignore", category=SlowPath):  # the path itself is looked at
            trainer.train()
    assert trainer.private._gradients.path == "layers"
    assert seen[0] <= 1e-3
    assert seen[0] == pytest.approx(1e-3, rel=2**-11), "clipped, and in full precision"


def test_a_budget_becomes_a_mechanism(tmp_path: Path) -> None:
    """Rate and steps follow from the arguments of the training, the noise from epsilon and delta."""
    trainer = trainer_of(tmp_path, epsilon=8.0, num_train_epochs=1.5)
    assert trainer.mechanism.rate == 0.2
    assert trainer.mechanism.steps == trainer.args.max_steps == 8
    assert 7.9 < guarantee(trainer.mechanism, 1e-3).epsilon <= 8


def test_the_model_is_as_always_afterwards(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, "gpt2", max_steps=1)
    model = trainer.model
    trainer.train()
    assert trainer.model is model
    model.eval()
    words = model.generate(torch.tensor([[3, 4]]), max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert words.shape == (1, 5)
    assert int(words.max()) < WORDS
    trainer.save_model(str(tmp_path / "saved"))
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "saved")
    assert torch.equal(again.lm_head.weight, model.lm_head.weight)
    model(torch.tensor([[3, 4]])).logits.sum().backward()  # the run is over


def test_adapters_are_saved_alone(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, "bert", copy.deepcopy(adapted("bert")).float(), max_steps=1)
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    base = copy.deepcopy(model_of("bert")).float()
    again = peft.PeftModel.from_pretrained(base, tmp_path / "saved")
    found, expected = (dict(model.named_parameters()) for model in (again, trainer.model))
    assert all(torch.equal(found[label], p) for label, p in expected.items() if "lora_" in label)


def test_the_log_has_epsilon_and_public_losses_only(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, eval_strategy="steps", eval_steps=2)
    result = trainer.train()
    history = trainer.state.log_history
    assert [line["epsilon"] for line in history] == sorted(line["epsilon"] for line in history)
    assert [line["step"] for line in history if "eval_loss" in line] == [2, 4, 5]
    assert not any(name in line for line in history for name in ("loss", "train_loss", "total_flos"))
    assert result.training_loss != result.training_loss
    assert "train_loss" not in result.metrics
    alone = trainer.evaluate()
    assert "eval_loss" in alone


def test_a_collator_gets_one_example_at_a_time(tmp_path: Path) -> None:
    seen = []

    def collator(examples: list[Any]) -> Any:
        seen.append(len(examples))
        return transformers.default_data_collator(examples)

    trainer_of(tmp_path, data_collator=collator, max_steps=1).train()
    assert set(seen) == {1}


def test_a_mechanism_is_trained_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many steps as it says, with batches of ever other sizes, whatever the arguments of the training are."""
    sizes = []
    summed = private_run.PerExampleGradients.encoded_sum

    def watched(self: Any, encoder: Any, batch: Any, **how: Any) -> Any:
        sizes.append(len(batch["labels"]))
        return summed(self, encoder, batch, **how)

    monkeypatch.setattr(private_run.PerExampleGradients, "encoded_sum", watched)
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.2, steps=12)
    trainer = trainer_of(tmp_path, mechanism=mechanism, logging_strategy="no")
    trainer.train()
    assert len(set(sizes)) > 2
    assert trainer.mechanism == mechanism
    assert trainer.state.global_step == 12
    (trained,) = trainer.private.mechanisms
    assert trained.replace(encoder=mechanism.encoder) == mechanism
    assert trained.encoder.dim == sum(p.numel() for p in trainer.model.parameters())


def test_padded_batches_of_several_lengths(tmp_path: Path) -> None:
    """Lists of words, of which a collator makes tensors, padded to a multiple."""

    def collator(examples: list[dict[str, Any]]) -> dict[str, Tensor]:
        long = -(-max(len(one["input_ids"]) for one in examples) // 4) * 4
        ids = torch.tensor([one["input_ids"] + [0] * (long - len(one["input_ids"])) for one in examples])
        return {
            "input_ids": ids,
            "attention_mask": (ids > 0).long(),
            "labels": torch.tensor([one["labels"] for one in examples]),
        }

    rows = [{"input_ids": list(range(1, 3 + i % 6)), "labels": i % 3} for i in range(EXAMPLES)]
    trainer = trainer_of(
        tmp_path, train_dataset=rows, eval_dataset=rows, data_collator=collator, max_steps=3, eval_strategy="epoch"
    )
    trainer.train()
    assert trainer.private._gradients.path == "layers"


def test_resume_goes_on_with_the_ledger(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    class Kill(transformers.TrainerCallback):
        def on_save(self, *_: Any, **__: Any) -> None:
            raise Killed

    options = {"save_strategy": "steps", "save_steps": 2, "learning_rate": 0.1}
    first = trainer_of(tmp_path, callbacks=[Kill()], **options)
    with pytest.raises(Killed):
        first.train()
    with refused(InvalidInput, match="ledger of an earlier training"):
        trainer_of(tmp_path, **options).train()
    second = trainer_of(tmp_path, **options)
    result = second.train(resume_from_checkpoint=True)
    assert result.global_step == 5
    assert second.private.steps_paid == 5
    assert read_ledger(tmp_path / "ledger.jsonl").mechanisms()[0].steps == 5
    with pytest.raises(BudgetSpent):
        trainer_of(tmp_path, **options).train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))


def test_resume_of_another_mechanism_is_refused(tmp_path: Path) -> None:
    first = trainer_of(tmp_path, save_strategy="steps", save_steps=5)
    first.train()
    other = Mechanism(L2(), Gaussian(scale=0.5), rate=0.2, steps=9)
    with refused(MechanismMismatch):
        trainer_of(tmp_path, mechanism=other).train(resume_from_checkpoint=True)
    state = json.loads((tmp_path / "checkpoint-5" / "trainer_state.json").read_text())
    assert state["global_step"] == 5


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"gradient_accumulation_steps": 2}, "gradients accumulated"),
        ({"label_smoothing_factor": 0.1}, "over a whole batch"),
        ({"compute_loss_func": lambda outputs, labels, num_items_in_batch=None: outputs.logits.sum()}, "whole batch"),
        ({"include_num_input_tokens_seen": "all"}, "tokens seen"),
        ({"auto_find_batch_size": True}, "found by trying"),
        ({"train_sampling_strategy": "group_by_length"}, "similar lengths"),
        ({"mechanism": Mechanism(L2(), Gaussian(scale=1.0), rate=0.2, steps=2), "epsilon": 8.0}, "either a mechanism"),
        ({"mechanism": None}, "either a mechanism"),
        ({"train_dataset": None}, "nothing to train on"),
        ({"per_device_train_batch_size": 64, "epsilon": 8.0}, "more than the 30 examples"),
    ],
)
def test_what_cannot_hold_is_refused(given: dict[str, Any], told: str, tmp_path: Path) -> None:
    with refused(InvalidInput, match=told):
        trainer_of(tmp_path, **given)


def test_a_search_is_refused(tmp_path: Path) -> None:
    with refused(InvalidInput, match="costs more than any"):
        trainer_of(tmp_path).hyperparameter_search()


def test_a_loss_over_the_whole_batch_is_refused(tmp_path: Path) -> None:
    """The model computes it itself, and it contrasts examples."""

    class Contrast(transformers.BertForSequenceClassification):
        def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> Any:
            logits = super().forward(input_ids, attention_mask).logits
            loss = nn.functional.cross_entropy(logits @ logits.T, torch.arange(len(logits)))
            return transformers.modeling_outputs.SequenceClassifierOutput(loss=loss, logits=logits)

    with refused(InvalidInput, match="not made of the losses of its examples"):
        trainer_of(tmp_path, model=Contrast(model_of("bert").config).float()).train()


def test_backward_by_a_callback_is_caught(tmp_path: Path) -> None:
    class Peek(transformers.TrainerCallback):
        def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
            model(input_ids=torch.tensor([[1, 2]])).logits.sum().backward()

    with refused(InvalidInput, match="raw gradient"):
        trainer_of(tmp_path, callbacks=[Peek()]).train()


def test_backward_by_the_trainer_itself_is_caught(tmp_path: Path) -> None:
    """Of a class that brings back the step and the batches of its parent."""

    class Plain(PrivateTrainer):
        training_step = transformers.Trainer.training_step

        def get_train_dataloader(self) -> Any:
            return transformers.Trainer.get_train_dataloader(self)

    with refused(InvalidInput, match="raw gradient"):
        trainer_of(tmp_path, cls=Plain).train()


class Spread(torch.autograd.Function):
    """The identity, whose derivative is that of the whole batch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.mean(0, keepdim=True).expand_as(grad)


WRONG = {
    "examples mixed": lambda found: found + found.mean(0),
    "a derivative that mixes them": Spread.apply,
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_layer_of_peft_is_refused_before_the_first_step(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = peft.tuners.lora.layer.Linear
    forward = layer.forward
    monkeypatch.setattr(layer, "forward", lambda self, *args, **given: WRONG[fault](forward(self, *args, **given)))
    trainer = trainer_of(tmp_path, model=copy.deepcopy(adapted("bert")).float(), goal=classification, max_steps=1)
    with refused(InvalidInput, match="differs from its gradient alone"):
        trainer.train()
    assert trainer.private is None
    assert read_ledger(tmp_path / "ledger.jsonl").mechanisms() == ()


def test_a_rule_that_is_wrong_for_a_layer_of_peft_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients are then those of autograd, by vmap."""
    monkeypatch.setattr(rules.lora, "outer_product", lambda x, g: grad_forms.outer_product(x, 2 * g))
    trainer = trainer_of(tmp_path, model=copy.deepcopy(adapted("bert")).float(), max_steps=1)
    trainer.train()
    assert trainer.private._gradients.path == "vmap"
