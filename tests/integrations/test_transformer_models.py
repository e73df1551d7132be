"""Models of transformers, made from small configs, and adapters of peft on them: gradients of one example at a time."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import peft
import pytest
import torch
import transformers
from torch import Tensor, nn

from noisette import Mechanism, make_private
from noisette._gradients import PerExampleGradients
from noisette._gradients.flat_params import Layout
from noisette._gradients.layer_strategy import Layers
from noisette._gradients.loss_adapter import adapt_loss
from noisette._gradients.probe import confirmed, dropout_disabled
from noisette._gradients.state_guard import ModelTracer
from noisette.encoders import L2, Ranked
from noisette.errors import InvalidInput
from noisette.noise import Gaussian, StudentT
from noisette.objectives import Objective, TokenCrossEntropy, classification, model_loss
from tests.support.helpers import refused

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "initializer_range": 0.3,  # small models with small weights do little
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
WORDS, LENGTH, COUNT = 40, 6, 4
TARGETS = {
    "bert": ["query", "value"],
    "gpt2": ["c_attn"],
    "llama": ["q_proj", "v_proj"],
    "vit": ["q_proj", "v_proj", "query", "value"],
}
GOALS: dict[str, Objective] = {
    "bert": classification,
    "gpt2": TokenCrossEntropy(ahead=1),
    "llama": TokenCrossEntropy(ahead=1),
    "vit": classification,
}


@cache
def model_of(name: str) -> Any:
    """One of each, in float64."""
    torch.manual_seed(0)
    short = {"vocab_size": WORDS, "max_position_embeddings": 2 * LENGTH}
    if name == "bert":
        config = transformers.BertConfig(**SIZES, **NO_DROPOUT, **short, num_labels=3)
        return transformers.BertForSequenceClassification(config).double()
    if name == "gpt2":
        rates = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        size = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 2 * LENGTH, "initializer_range": 0.3}
        config = transformers.GPT2Config(vocab_size=WORDS, bos_token_id=1, eos_token_id=2, **size, **rates)
        return transformers.GPT2LMHeadModel(config).double()
    if name == "llama":
        config = transformers.LlamaConfig(**SIZES, **short, num_key_value_heads=1)
        return transformers.LlamaForCausalLM(config).double()
    config = transformers.ViTConfig(**SIZES, **NO_DROPOUT, image_size=8, patch_size=4, num_labels=3)
    return transformers.ViTForImageClassification(config).double()


@cache
def adapted(name: str, dropout: float = 0.0) -> Any:
    """The same with adapters on queries and values, whose second half is no longer zero."""
    torch.manual_seed(1)
    given = {"r": 2, "lora_alpha": 8, "lora_dropout": dropout, "fan_in_fan_out": name == "gpt2"}
    model = peft.get_peft_model(
        copy.deepcopy(model_of(name)), peft.LoraConfig(target_modules=TARGETS[name], **given)
    ).double()
    for label, parameter in model.named_parameters():
        if "lora_B" in label:
            nn.init.normal_(parameter, std=0.1)
    return model


def batch_of(name: str, count: int = COUNT, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Sentences of several lengths, padded and masked; or pictures."""
    torch.manual_seed(2)
    if name == "vit":
        return {"pixel_values": torch.randn(count, 3, 8, 8, dtype=dtype), "labels": torch.randint(3, (count,))}
    words, mask = torch.randint(1, WORDS, (count, LENGTH)), torch.ones(count, LENGTH, dtype=torch.long)
    mask[1, 4:] = mask[3, 5:] = 0
    labels = torch.randint(3, (count,)) if name == "bert" else words.masked_fill(mask == 0, -100)
    return {"input_ids": words, "attention_mask": mask, "labels": labels}


def single(model: Any, goal: Objective, batch: dict[str, Tensor]) -> Tensor:
    """Gradients (B, dim), one ordinary backward pass for each example; leaves no grad behind."""
    parameters, rows = [p for p in model.parameters() if p.requires_grad], []
    for i in range(len(batch["labels"])):
        model.zero_grad(set_to_none=True)
        goal(model, {name: part[i : i + 1] for name, part in batch.items()}).sum().backward()
        rows.append(torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters]))
    model.zero_grad(set_to_none=True)
    return torch.stack(rows)


def check(
    model: Any, goal: Objective, batch: dict[str, Tensor], expected: Tensor, **close: float
) -> PerExampleGradients:
    """The fast way, of which nobody is told that it is slow, gives the same rows."""
    gradients = PerExampleGradients(model, goal)
    (rows,) = gradients.chunks(batch)
    assert gradients.path == "layers"
    assert float(expected.abs().max()) > 1e-3
    torch.testing.assert_close(rows, expected.to(rows.dtype), **(close or {"rtol": 1e-9, "atol": 1e-12}))
    return gradients


def copied(model: Any, goal: Objective, batch: dict[str, Tensor]) -> set[str]:
    """The parameters that no rule covers."""
    way = Layers.candidates(adapt_loss(model, goal), Layout(model), ModelTracer(model, goal))[-1]
    way.terms(batch)
    return {name for name, p in model.named_parameters() if p in way._copied}


BARE = {"vit": {"vit.embeddings.cls_token", "vit.embeddings.position_embeddings"}}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", GOALS)
def test_every_model(name: str, attention: str) -> None:
    model, goal, batch = model_of(name), GOALS[name], batch_of(name)
    model.set_attn_implementation(attention)
    model.train()
    check(model, goal, batch, single(model, goal, batch))
    norms = {label for label, _ in model.named_parameters() if name == "llama" and "norm" in label}
    assert copied(model, goal, batch) == BARE.get(name, set()) | norms  # LlamaRMSNorm is a class of transformers


def test_tied_embeddings_are_one_parameter() -> None:
    model = model_of("gpt2")
    assert model.lm_head.weight is model.transformer.wte.weight
    assert PerExampleGradients(model, GOALS["gpt2"]).dim == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", GOALS)
def test_adapters(name: str) -> None:
    """Only their gradients are computed, and what they are multiplied by counts."""
    model, goal, batch = adapted(name), GOALS[name], batch_of(name)
    model.train()
    expected = single(model, goal, batch)
    gradients = check(model, goal, batch, expected)
    assert gradients.dim == sum(p.numel() for label, p in model.named_parameters() if "lora_" in label)
    assert gradients.dim < 0.1 * sum(p.numel() for p in model.parameters())
    assert copied(model, goal, batch) == set()


def test_the_scaling_of_adapters() -> None:
    """The derivative by the second factor, where the first order counts alone, is lora_alpha / r times that at one."""
    goal, batch = GOALS["bert"], batch_of("bert")
    rows = []
    for alpha in (2, 8):
        torch.manual_seed(1)
        given = peft.LoraConfig(r=2, lora_alpha=alpha, target_modules=["query"])
        model = peft.get_peft_model(copy.deepcopy(model_of("bert")), given).double()
        for label, parameter in model.named_parameters():
            if "lora_A" in label:
                nn.init.normal_(parameter)
        (found,) = PerExampleGradients(model, goal).chunks(batch)
        rows.append(found.clone())
    assert float(rows[0].abs().max()) > 1e-6
    torch.testing.assert_close(rows[1], 4 * rows[0], rtol=1e-9, atol=1e-14)


def test_dropout_of_adapters() -> None:
    """In training it draws anew for every example and every call; in evaluation there is none."""
    model, goal, batch = adapted("bert", dropout=0.5), GOALS["bert"], batch_of("bert")
    model.eval()
    check(model, goal, batch, single(model, goal, batch))
    model.train()
    gradients = PerExampleGradients(model, goal)
    same = {name: part[:1].expand(COUNT, *part.shape[1:]).contiguous() for name, part in batch.items()}
    first, second = (next(gradients.chunks(same)).clone() for _ in range(2))
    assert gradients.path == "layers"
    assert not torch.allclose(first[0], first[1])
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("again", [None, False, True], ids=["kept", "checkpoints", "reentrant checkpoints"])
@pytest.mark.parametrize("name", ["bert", "vit"])
def test_dropout_of_fused_attention(name: str, again: bool | None) -> None:
    """It is off while rules are compared with autograd, or they would never agree; and on in training."""
    model, goal, batch = copy.deepcopy(model_of(name)), GOALS[name], batch_of(name)
    for module in model.modules():
        for rate in ("dropout_prob", "attention_dropout"):  # classes of transformers spell it in two ways
            if hasattr(module, rate):
                setattr(module, rate, 0.5)
        if isinstance(module, nn.Dropout):
            module.p = 0.5
    model.set_attn_implementation("sdpa")
    model.train()
    if again is not None:
        model.gradient_checkpointing_enable({"use_reentrant": again})
    gradients = PerExampleGradients(model, goal)
    first, second = (next(gradients.chunks(batch)).clone() for _ in range(2))
    assert gradients.path == "layers"
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("reentrant", [False, True], ids=["", "reentrant"])
@pytest.mark.parametrize("of", [model_of, adapted], ids=["whole", "adapters"])
@pytest.mark.parametrize("name", GOALS)
def test_gradient_checkpointing_left_on(name: str, of: Any, reentrant: bool) -> None:
    model, goal, batch = copy.deepcopy(of(name)), GOALS[name], batch_of(name)
    model.train()
    expected = single(model, goal, batch)
    if of is adapted:
        model.enable_input_require_grads()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    check(model, goal, batch, expected)


def test_the_loss_of_the_model_itself() -> None:
    """It sees its labels; that of an example alone is the same mean over its tokens."""
    model, batch = model_of("gpt2"), batch_of("gpt2")
    expected = single(model, model_loss, batch)
    check(model, model_loss, batch, expected)
    assert _apart(single(model, GOALS["gpt2"], batch), expected) < 1e-5  # theirs is in single precision


def _apart(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_models_in_bfloat16(name: str) -> None:
    """Gradients are float32, as near to those in double precision as a loop of passes in bfloat16 is."""
    exact = single(model_of(name), GOALS[name], batch_of(name))
    model, batch = copy.deepcopy(model_of(name)).bfloat16(), batch_of(name, dtype=torch.bfloat16)
    looped = _apart(single(model, GOALS[name], batch), exact)
    gradients = PerExampleGradients(model, GOALS[name])
    (rows,) = gradients.chunks(batch)
    assert gradients.path == "layers"
    assert rows.dtype == torch.float32
    assert 0 < _apart(rows, exact) < 1.5 * looped < 0.1


@pytest.mark.parametrize("name", ["gpt2", "llama", "vit"])
def test_autocast(name: str) -> None:
    model, batch = copy.deepcopy(model_of(name)).float(), batch_of(name, dtype=torch.float32)
    exact = single(model, GOALS[name], batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        looped = _apart(single(model, GOALS[name], batch), exact)
        gradients = PerExampleGradients(model, GOALS[name])
        (rows,) = gradients.chunks(batch)
    assert gradients.path == "layers"
    assert 0 < _apart(rows, exact) < 1.5 * looped < 0.1


@pytest.mark.parametrize("of", [model_of, adapted], ids=["whole", "adapters"])
def test_encoded_sums(of: Any) -> None:
    """In single precision, with few rows in memory."""
    model, goal, batch = copy.deepcopy(of("gpt2")).float(), GOALS["gpt2"], batch_of("gpt2", 9)
    rows = single(model, goal, batch)
    radius = 0.5 * float(rows.norm(dim=1).median())
    for encoder in (L2(dim=rows.shape[1], radius=radius), Ranked(dim=rows.shape[1], radius=radius)):
        gradients = PerExampleGradients(model, goal)
        found, fused = gradients.encoded_sum(encoder, batch).unsafe_values(), gradients._fused_sum(encoder, batch)
        assert fused is not None
        assert torch.equal(found, fused)
        assert _apart(found, encoder.encode_sum(rows).unsafe_values()) < 1e-3


@pytest.mark.parametrize(
    "mechanism",
    [
        Mechanism(L2(), Gaussian(scale=1.0), rate=0.2, steps=2),
        Mechanism(Ranked(), StudentT(df=9, scale=1.0), rate=0.2, steps=2),
    ],
    ids=["L2", "Ranked"],
)
@pytest.mark.parametrize("kind", ["whole", "adapters"])
def test_two_private_steps(kind: str, mechanism: Mechanism) -> None:
    """From the model and the data to a changed model; what is frozen stays as it is."""
    model = copy.deepcopy((model_of if kind == "whole" else adapted)("gpt2")).float()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    private = make_private(model, TokenCrossEntropy(ahead=1), batch_of("gpt2", 30), mechanism)
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.1)
    steps = 0
    for _ in private:
        optimizer.step()
        steps += 1
    assert steps == 2
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name]) != p.requires_grad
        assert p.isfinite().all()


def test_two_private_steps_of_a_classifier() -> None:
    model = copy.deepcopy(model_of("bert")).float()
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.2, steps=2)
    assert len(list(make_private(model, classification, batch_of("bert", 30), mechanism))) == 2


def t5() -> Any:
    config = transformers.T5Config(
        vocab_size=WORDS,
        d_model=8,
        d_kv=4,
        d_ff=16,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
        dropout_rate=0,
    )
    torch.manual_seed(0)
    return transformers.T5ForConditionalGeneration(config).double()


def test_from_sequence_to_sequence_the_decoder_starts_from_the_labels() -> None:
    model, made = t5(), torch.Generator().manual_seed(1)
    sizes = {"input_ids": (COUNT, 6), "labels": (COUNT, 4)}
    batch = {name: torch.randint(WORDS, size, generator=made) for name, size in sizes.items()}
    batch["labels"][1:, -1] = -100
    found = []
    for goal in (model_loss, TokenCrossEntropy()):
        gradients = PerExampleGradients(model, goal)
        found.append(torch.cat([rows.clone() for rows in gradients.chunks(batch)]))
        assert gradients.path == "layers"
    torch.testing.assert_close(found[1], found[0])
    batch["decoder_input_ids"] = torch.zeros_like(batch["labels"])
    given = torch.cat([rows.clone() for rows in PerExampleGradients(model, TokenCrossEntropy()).chunks(batch)])
    assert not torch.allclose(given, found[0]), "what the batch has for the decoder counts"


def test_the_noise_of_neftune_is_taken_neither_for_a_contrast_nor_for_rounding() -> None:
    model = copy.deepcopy(model_of("gpt2"))
    transformers.integrations.neftune.activate_neftune(model, 5.0)
    gradients = PerExampleGradients(model, model_loss)
    gradients.check(batch_of("gpt2"))
    assert (gradients.path, gradients.inexact) == ("layers", None)


@pytest.mark.filterwarnings("ignore::noisette._gradients.SlowPath")
def test_masks_of_speech_models_are_refused_by_name() -> None:
    off = dict.fromkeys(("hidden_dropout", "attention_dropout", "feat_proj_dropout", "layerdrop"), 0.0)
    convolutions = {"conv_dim": (4, 4), "conv_stride": (5, 2), "conv_kernel": (10, 3)}
    positions = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    small = {**SIZES, "num_hidden_layers": 1, "num_labels": 3, "mask_time_prob": 0.5, "mask_time_length": 2}
    config = transformers.Wav2Vec2Config(**{**small, **off, **convolutions, **positions})
    model = transformers.Wav2Vec2ForSequenceClassification(config)
    batch = {"input_values": torch.rand(4, 120), "labels": torch.arange(4) % 3}
    with refused(InvalidInput, match=r"\n\nhint: model\.config\.apply_spec_augment = False"):
        PerExampleGradients(model, classification).check(batch)
    model.config.apply_spec_augment = False
    gradients = PerExampleGradients(model, classification)
    with torch.enable_grad(), dropout_disabled(gradients._aim, gradients.device):
        confirmed(gradients._aim, gradients._layout, gradients._fast, batch)
