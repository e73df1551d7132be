"""Train a small GPT-2 on private lines of text, then let it write: ``python examples/gpt2.py``.

The lines are made up: little sums like ``3+4=7.``, each somebody's secret. The model's input and output share one
table of letters; its loss is its own. Needs ``noisette[transformers]``; takes about half a minute of one core.
"""

from __future__ import annotations

import argparse
import tempfile

import torch
import transformers

from noisette.integrations.transformers import PrivateTrainer

LETTERS = "0123456789+=."


def lines(count: int) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    found = []
    for a, b in torch.randint(5, (count, 2), generator=generator).tolist():
        letters = torch.tensor([LETTERS.index(letter) for letter in f"{a}+{b}={a + b}."])
        found.append({"input_ids": letters, "labels": letters})
    return found


def main(small: bool = False) -> str:
    size = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 8, "initializer_range": 0.1}
    rates = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    ends = {"bos_token_id": 12, "eos_token_id": 12, "pad_token_id": 12}
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=len(LETTERS), **size, **rates, **ends))
    data = lines(200 if small else 4000)
    with tempfile.TemporaryDirectory() as folder:
        given = transformers.TrainingArguments(
            folder,
            max_steps=2 if small else 200,
            per_device_train_batch_size=20 if small else 400,
            learning_rate=3e-3,
            lr_scheduler_type="constant",
            save_strategy="no",
            logging_steps=50,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = PrivateTrainer(model, given, train_dataset=data, epsilon=8.0, delta=1e-5)
        trainer.train()
        promise = trainer.guarantee()
    model.eval()
    start = torch.tensor([[LETTERS.index(letter) for letter in "2+2="]])
    words = model.generate(start, attention_mask=torch.ones_like(start), max_new_tokens=2, do_sample=False)
    text = "".join(LETTERS[letter] for letter in words[0].tolist())
    print(f"{text}  ({promise})")
    return text


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--small", action="store_true")
    main(**vars(asked.parse_args()))
