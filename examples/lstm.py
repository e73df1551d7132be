"""Train an LSTM on private sequences of several lengths: ``python examples/lstm.py``.

Which of two symbols comes last but one, in sequences of 6 to 9: nothing but the order tells. Sequences of one length
are computed together, and no sequence is padded because of another. Takes about half a minute of one core.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from noisette import make_private, plan


class Sequences(Dataset):
    """Symbols 0 to 3; the label is whether the last but one is a 0 or 1."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.symbols = [torch.randint(4, (6 + i % 4,), generator=generator) for i in range(count)]

    def __len__(self) -> int:
        return len(self.symbols)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        return self.symbols[number], int(self.symbols[number][-2] < 2)


class Reader(nn.Module):
    """Symbols to two classes, by what an LSTM says at the last of them."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.lstm, self.head = nn.Embedding(4, 16), nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 2)

    def forward(self, symbols: Tensor) -> Tensor:
        return self.head(self.lstm(self.table(symbols))[0][:, -1])


def main(small: bool = False) -> float:
    torch.manual_seed(0)
    data, test, model = Sequences(200 if small else 4000, seed=1), Sequences(400, seed=2), Reader()
    mechanism = plan(model, data, epsilon=4.0, delta=1e-5, batch=20 if small else 400, steps=2 if small else 150)
    private = make_private(model, nn.CrossEntropyLoss(), data, mechanism)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in private:
        optimizer.step()
    with torch.no_grad():
        found = [int(model(symbols[None]).argmax()) == label for symbols, label in (test[i] for i in range(len(test)))]
    right = sum(found) / len(found)
    print(f"test accuracy {right:.1%}, {private.guarantee(delta=1e-5)}")
    return right


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--small", action="store_true")
    main(**vars(asked.parse_args()))
