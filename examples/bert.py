"""Train a small BERT, or LoRA adapters on one, on private sentences: ``python examples/bert.py`` or ``... --lora``.

Two grammars make sentences of the same words: in one the adjective stands before its noun, in the other behind it.
Which of them made a sentence cannot be told from its words, only from their order. Private sentences are labelled with
their grammar, and a BERT is trained on them at epsilon 8. With ``--lora`` it was trained before on a few public ones,
and adapters are trained. Printed are test accuracies of logistic regression on bags of words, before, of a training
without privacy, and of the private one, also as a share of the way from guessing to that without privacy.
Needs ``noisette[transformers]``; takes less than a minute of one core.
"""

from __future__ import annotations

import argparse
import copy
import tempfile

import numpy as np
import peft
import torch
import transformers
from sklearn.linear_model import LogisticRegression
from torch.utils.data import Dataset

from noisette.integrations.transformers import PrivateTrainer

WORDS, KINDS, CLAUSES, CLS = 20, 3, 4, 2
FIRST = 3  # numbers below are special
VOCABULARY = FIRST + WORDS * KINDS
LENGTH = 1 + 3 * CLAUSES
PUBLIC = 60


def sentences(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens (count, LENGTH), and which grammar made them (count,)."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    adjective, noun, verb = (FIRST + WORDS * kind + rng.integers(WORDS, size=(count, CLAUSES)) for kind in range(3))
    before = (labels == 0)[:, None]
    pair = np.where(before, adjective, noun), np.where(before, noun, adjective)
    clauses = np.stack([*pair, verb], axis=2).reshape(count, -1)
    return np.concatenate([np.full((count, 1), CLS), clauses], axis=1), labels


class Sentences(Dataset):
    """Sentences with their labels."""

    def __init__(self, count: int, seed: int) -> None:
        self.tokens, self.labels = (torch.from_numpy(part) for part in sentences(count, seed))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        tokens = self.tokens[number]
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": self.labels[number]}


def options(folder: str, **given: object) -> transformers.TrainingArguments:
    quiet = {"report_to": "none", "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
    return transformers.TrainingArguments(
        tempfile.mkdtemp(dir=folder), use_cpu=True, lr_scheduler_type="constant_with_warmup", **quiet, **given
    )


def config() -> transformers.BertConfig:
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    # weights larger than usual: a model that is so small does little otherwise; and noise is regularisation enough
    rest = {"initializer_range": 0.1, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.BertConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, num_labels=2, **size, **rest)


def adapted(folder: str, steps: int) -> peft.PeftModel:
    """Adapters on a BERT that was trained on a few public sentences; its classifier is trained as well."""
    model = transformers.BertForSequenceClassification(config())
    given = options(folder, max_steps=steps, per_device_train_batch_size=64, learning_rate=2e-3, warmup_steps=5)
    transformers.Trainer(model, given, train_dataset=Sentences(PUBLIC, seed=1)).train()
    where = {"target_modules": ["query", "value", "dense"], "modules_to_save": ["classifier"]}
    lora = peft.LoraConfig(r=8, lora_alpha=16, **where)
    return peft.get_peft_model(model, lora)


def right(model: torch.nn.Module, data: Sentences) -> float:
    model.eval()
    with torch.no_grad():
        found = model(input_ids=data.tokens).logits.argmax(1)
    return float((found == data.labels).double().mean())


def bags(train: Sentences, test: Sentences) -> float:
    """Logistic regression on how often each word occurs."""
    counts = [np.stack([np.bincount(row, minlength=VOCABULARY) for row in part.tokens]) for part in (train, test)]
    fitted = LogisticRegression(max_iter=1000).fit(counts[0], train.labels.numpy())
    return float(fitted.score(counts[1], test.labels.numpy()))


def main(small: bool = False, lora: bool = False, seed: int = 0) -> dict[str, float]:
    transformers.utils.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    torch.manual_seed(seed)
    steps, first, batch = (3, 3, 64) if small else (150, 15, 600)
    train, test = Sentences(256 if small else 6000, seed=2 + 10 * seed), Sentences(1000, seed=3 + 10 * seed)
    with tempfile.TemporaryDirectory() as folder:
        model = adapted(folder, first) if lora else transformers.BertForSequenceClassification(config())
        before = right(model, test)
        plain, rate = copy.deepcopy(model), {"learning_rate": 2e-3, "warmup_steps": 5, "max_steps": steps}
        given = options(folder, per_device_train_batch_size=64, **rate)
        transformers.Trainer(plain, given, train_dataset=train).train()
        given = options(folder, per_device_train_batch_size=batch, **rate)
        trainer = PrivateTrainer(model, given, train_dataset=train, epsilon=8.0, delta=1e-5)
        trainer.train()
        found = {
            "bags": bags(train, test),
            "before": before,
            "plain": right(plain, test),
            "private": right(model, test),
        }
        promise = trainer.guarantee()
    share = (found["private"] - 0.5) / (found["plain"] - 0.5) if found["plain"] > 0.5 else 0.0
    print(
        f"bags of words {found['bags']:.1%}, before {before:.1%}, without privacy {found['plain']:.1%}, "
        f"private {found['private']:.1%} ({share:.0%} of the way), {promise}"
    )
    return {**found, "before": before, "share": share, "epsilon": promise.epsilon}


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--small", action="store_true")
    asked.add_argument("--lora", action="store_true", help="train adapters on a model that knows public sentences")
    asked.add_argument("--seed", type=int, default=0)
    main(**vars(asked.parse_args()))
