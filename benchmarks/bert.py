"""A step of PrivateTrainer on a small BERT with a mask, beside Opacus' hooks: one process, interleaved, CPU time.

    python benchmarks/bert.py            # prints and writes benchmarks/results/bert.json

Two layers, width 64, 64 tokens, batch 64, padded to several lengths. A step is reading and collating the examples, the
private gradient, and an optimizer's step. Opacus gets explicit position and token-type ids, which its hooks need, and
batches of a fixed size; ours a sampling rate of 1, so that both compute on 64 examples.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
import transformers
from opacus import PrivacyEngine
from step import interleaved
from torch.utils.data import DataLoader, Dataset

from noisette import Mechanism
from noisette._gradients import SlowPath
from noisette.encoders import L2
from noisette.integrations.transformers import PrivateTrainer
from noisette.noise import Gaussian

RESULTS = Path(__file__).parent / "results" / "bert.json"
BATCH, TOKENS, WORDS = 64, 64, 1000


class Sentences(Dataset):
    """Sentences of 16 to 64 words, padded and masked; `explicit` ones with what a model otherwise adds itself."""

    def __init__(self, explicit: bool) -> None:
        generator = torch.Generator().manual_seed(0)
        self.words = torch.randint(1, WORDS, (BATCH, TOKENS), generator=generator)
        lengths = torch.randint(16, TOKENS + 1, (BATCH, 1), generator=generator)
        self.mask = (torch.arange(TOKENS) < lengths).long()
        self.labels, self.explicit = torch.arange(BATCH) % 2, explicit

    def __len__(self) -> int:
        return BATCH

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        row = {"input_ids": self.words[number], "attention_mask": self.mask[number], "labels": self.labels[number]}
        if self.explicit:
            row |= {"position_ids": torch.arange(TOKENS), "token_type_ids": torch.zeros(TOKENS, dtype=torch.long)}
        return row


def bert() -> transformers.BertForSequenceClassification:
    torch.manual_seed(0)
    size = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
    config = transformers.BertConfig(vocab_size=WORDS, max_position_embeddings=TOKENS, num_labels=2, **size)
    return transformers.BertForSequenceClassification(config)


def ours(folder: str) -> tuple[PrivateTrainer, object]:
    given = transformers.TrainingArguments(folder, use_cpu=True, report_to="none", optim="sgd", disable_tqdm=True)
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=1.0, steps=100_000)
    trainer = PrivateTrainer(bert(), given, train_dataset=Sentences(False), mechanism=mechanism, delta=1e-3)
    model, _ = trainer._prepare_for_training(mechanism.steps, trainer.get_train_dataloader(), None)

    def step() -> None:
        trainer.training_step(model, {})
        trainer.optimizer.step()
        model.zero_grad()

    return trainer, step


def theirs() -> object:
    model = bert().train()
    loader = DataLoader(Sentences(True), batch_size=BATCH, collate_fn=transformers.default_data_collator)
    optimizer = torch.optim.SGD(model.parameters(), lr=5e-5)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
    )

    def step() -> None:
        (batch,) = loader
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=31)
    rounds = options.parse_args().rounds
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="opacus")
    warnings.filterwarnings("ignore", message=".*(backward hook|Full backward|Secure RNG|gradient layout).*")
    warnings.filterwarnings("error", category=SlowPath)
    with tempfile.TemporaryDirectory() as folder:
        trainer, step = ours(folder)
        times = interleaved({"PrivateTrainer": step, "Opacus hooks": theirs()}, rounds)
        path = trainer.private._gradients.path
        trainer._own_book.close()
    ratio = np.quantile(times[:, 0] / times[:, 1], [0.25, 0.5, 0.75])
    found = {
        "rounds": rounds,
        "path": path,
        "ms": {
            name: round(float(ms), 1)
            for name, ms in zip(("ours", "hooks"), np.median(times, axis=0) * 1e3, strict=True)
        },
        "ratio": [round(float(value), 3) for value in ratio],
        "bar": 0.8,
        "passed": bool(ratio[1] <= 0.8),
    }
    print(json.dumps(found, indent=2))
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
