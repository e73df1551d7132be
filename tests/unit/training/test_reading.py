"""Data sets that are read as they are drawn: any Dataset, any collate_fn, and whatever can go wrong with them."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from noisette import Generator, Mechanism, make_private
from noisette.accounting import Ledger
from noisette.encoders import L2, Ranked
from noisette.errors import InvalidInput, Unreadable
from noisette.noise import Gaussian, StudentT
from noisette.training import PrivateRun, plan, private_run
from tests.support.helpers import refused
from tests.support.tiny_run import DIM, examples, flat, gaussian, network

LOSS = nn.CrossEntropyLoss()


class Table(Dataset):
    """The tiny examples, one at a time; `change` may do something to one when it is read."""

    def __init__(self, change: Callable[[int, Any], Any] | None = None) -> None:
        self.x, self.y = examples()
        self.change, self.count, self.reads = change, len(self.x), list[int]()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Any:
        self.reads.append(number)
        example = (self.x[number], self.y[number])
        return self.change(number, example) if self.change else example


def run_of(data: Any, mechanism: Mechanism | None = None, **options: Any) -> PrivateRun:
    return make_private(network(), LOSS, data, mechanism or gaussian(), **options)


def trained(data: Any, mechanism: Mechanism | None = None, **options: Any) -> Tensor:
    private = run_of(data, mechanism, seed=3, **options)
    optimizer = torch.optim.SGD(private.parameters, lr=0.1)
    for _ in private:
        optimizer.step()
    return flat(private.parameters)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "mechanism",
    [
        gaussian(),
        gaussian(rate=0.01),
        Mechanism(Ranked(dim=DIM), StudentT(df=5, scale=1.0), rate=0.5, steps=4),
        (gaussian(2), gaussian(3, rate=0.9)),
        Mechanism(L2(dim=DIM, micro_batch=3), Gaussian(scale=1.0), rate=0.5, steps=4),
    ],
    ids=["plain", "mostly empty batches", "ranked", "two mechanisms", "micro-batches"],
)
def test_a_data_set_trains_as_its_tensors_do(mechanism: Any, workers: int) -> None:
    """Same seed, same batches, same sums: reading ahead changes nothing. Pieces of 4, so that there are many."""
    expected = trained(examples(), mechanism, chunk=4)
    torch.testing.assert_close(trained(Table(), mechanism, chunk=4, workers=workers), expected, rtol=1e-10, atol=1e-12)


def test_only_what_was_drawn_is_read() -> None:
    """And the first example once, for its shape."""
    data = Table()
    private = run_of(data, gaussian(1, rate=0.3), seed=1)
    assert data.reads == [0]
    private.step()
    expected = np.flatnonzero(Generator(1, purpose="sampling").bernoulli(len(data), 0.3))
    assert data.reads[1:] == expected.tolist()


def test_tensors_in_a_data_set_are_used_as_they_are() -> None:
    assert torch.equal(trained(TensorDataset(*examples())), trained(examples()))


def test_a_list_of_examples_is_a_data_set() -> None:
    listed = list(zip(*examples(), strict=True))
    torch.testing.assert_close(trained(listed), trained(examples()), rtol=1e-10, atol=1e-12)


# -- shapes and collating ----------------------------------------------------------------------------------------------


class Words(Dataset):
    """Sentences of different lengths."""

    def __init__(self, count: int = 30) -> None:
        made = torch.Generator().manual_seed(0)
        lengths = torch.randint(1, 4, (count,), generator=made)
        self.rows = [torch.randint(1, 9, (int(n),), generator=made) for n in lengths]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        return {"tokens": self.rows[number], "labels": self.rows[number][0] % 2}


class MeanOfWords(nn.Module):
    """Counts the padding in, as a careless model does."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(9, 3), nn.Linear(3, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.words(tokens).mean(1))


def by_words(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch["tokens"]), batch["labels"], reduction="none")


def padded(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Pads to the longest of the batch, as collators do."""
    tokens = nn.utils.rnn.pad_sequence([row["tokens"] for row in rows], batch_first=True)
    return {"tokens": tokens, "labels": torch.stack([row["labels"] for row in rows])}


@pytest.mark.parametrize("collate_fn", [None, padded], ids=["default", "padding"])
@pytest.mark.parametrize("workers", [0, 1])
def test_no_example_is_padded_because_of_another(
    monkeypatch: pytest.MonkeyPatch, collate_fn: Any, workers: int
) -> None:
    """The sum is that of gradients of examples alone, though padding would change them."""
    torch.manual_seed(0)
    model, data = MeanOfWords().double(), Words()
    mechanism = Mechanism(L2(radius=100.0), Gaussian(scale=1.0), rate=1.0, steps=1)
    private = make_private(model, by_words, data, mechanism, collate_fn=collate_fn, workers=workers, chunk=7)
    sums = watched(monkeypatch)
    private.step()
    private.close()  # nobody uses these gradients, and what follows is the model's own
    expected = torch.zeros(private._gradients.dim, dtype=torch.float64)
    for number in range(len(data)):
        model.zero_grad(set_to_none=True)
        by_words(model, default_collate([data[number]])).sum().backward()
        expected += flat(p.grad for p in model.parameters())
    torch.testing.assert_close(sums[0], expected, rtol=0, atol=1e-4)


class Padding(Words):
    """Pads to the longest that it is asked for at once, as the transforms of Hugging Face do."""

    def __getitems__(self, numbers: list[int]) -> list[dict[str, Tensor]]:
        found = padded([self[number] for number in numbers])
        return [{name: part[i] for name, part in found.items()} for i in range(len(numbers))]


def test_a_data_set_is_asked_for_one_example_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = watched(monkeypatch)
    mechanism = Mechanism(L2(radius=100.0), Gaussian(scale=1.0), rate=1.0, steps=1)
    for data in Words(), Padding():
        torch.manual_seed(0)
        make_private(MeanOfWords().double(), by_words, data, mechanism).step()
    torch.testing.assert_close(sums[1], sums[0])


def watched(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The private sums of all steps from now on."""
    sums: list[Tensor] = []
    release = private_run.release

    def tells(mechanism: Any, total: Any, **options: Any) -> Any:
        sums.append(total.unsafe_values().clone())
        return release(mechanism, total, **options)

    monkeypatch.setattr(private_run, "release", tells)
    return sums


def twice(rows: list[Any]) -> Any:
    return default_collate(rows * 2)


def none(rows: list[Any]) -> Any:
    return [part[:0] for part in default_collate(rows)]


def uneven(rows: list[Any]) -> Any:
    x, y = default_collate(rows)
    return x.repeat(2, 1), y


def text(rows: list[Any]) -> Any:
    return [row[0].tolist() for row in rows], ["secret"]


def fails(rows: list[Any]) -> Any:
    raise KeyError("secret")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("collate_fn", "said"),
    [
        (twice, "is not one row of each part"),
        (none, "is not one row of each part"),
        (uneven, "is not one row of each part"),
        (text, "not numbers"),
        (fails, r"collate_fn fails on example 0 \(KeyError\)"),
    ],
)
def test_a_collate_fn_that_drops_repeats_or_fails_is_refused(collate_fn: Any, said: str, workers: int) -> None:
    with refused(Unreadable, match=said) as caught:
        run_of(Table(), collate_fn=collate_fn, workers=workers)
    assert "secret" not in str(caught.value)


BUFFER = torch.zeros(1, 3, dtype=torch.float64)


def into_the_buffer(rows: list[Any]) -> Any:
    return BUFFER.copy_(rows[0][0][None]), rows[0][1][None]


@pytest.mark.parametrize("way", ["collate_fn", "the data set"])
def test_memory_that_is_used_again_is_copied(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    sums = watched(monkeypatch)
    change = (lambda _, example: (BUFFER[0].copy_(example[0]), example[1])) if way == "the data set" else None
    collate_fn = into_the_buffer if way == "collate_fn" else None
    for data, options in ((examples(), {}), (Table(change), {"collate_fn": collate_fn})):
        run_of(data, gaussian(1, rate=1.0), **options).step()
    torch.testing.assert_close(sums[1], sums[0], rtol=1e-9, atol=1e-12)


class InOneFile(Table):
    """Would open its file when it is first read, and move about in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.opened = path, False
        path.write_bytes(self.x.numpy().tobytes())

    def __getitem__(self, number: int) -> Any:
        self.opened = True
        return torch.frombuffer(bytearray(self.path.read_bytes()), dtype=torch.float64).view(-1, 3)[number], self.y[
            number
        ]


def test_workers_open_files_of_their_own(tmp_path: Path) -> None:
    """This process reads nothing itself, so that no file is open when workers are forked."""
    data = InOneFile(tmp_path / "rows")
    private = run_of(data, gaussian(2, rate=1.0), workers=2)
    private.step()
    assert not data.opened


def test_many_lengths_take_few_open_files() -> None:
    """Each tensor from a worker takes one: all parts of a piece travel in one for each type of number."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lines = [{"tokens": torch.ones(n).long(), "labels": torch.tensor(n % 2)} for n in range(1, 400)]
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=1.0, steps=1)
    private = make_private(MeanOfWords(), by_words, lines, mechanism, workers=1, chunk=400)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 60, before[1]))
    try:
        private.step()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_run_that_is_left_lets_its_workers_go(tmp_path: Path) -> None:
    """At once, without the garbage collector; and the ledger can be opened again."""
    others = set(multiprocessing.active_children())  # of tests before, whose errors still hold their runs
    with Ledger(tmp_path / "ledger.jsonl", data="tiny") as book:
        private = run_of(Table(), gaussian(9), workers=2, ledger=book)
        private.step()
        workers = set(multiprocessing.active_children()) - others
        assert len(workers) == 2
    Ledger(tmp_path / "ledger.jsonl").close()  # though workers have the file open
    gc.disable()
    try:
        del private
        for worker in workers:
            worker.join(10)
        assert not any(worker.is_alive() for worker in workers)
    finally:
        gc.enable()


def test_close_lets_workers_go_and_the_model_be_used() -> None:
    others = set(multiprocessing.active_children())
    private = run_of(Table(), gaussian(9), workers=1)
    private.step()
    assert set(multiprocessing.active_children()) - others
    private.close()
    assert not set(multiprocessing.active_children()) - others
    private.model(examples()[0]).sum().backward()
    private.model.zero_grad()
    assert list(private)[-1] == 9


# -- numbers of all kinds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("double", [True, False])
def test_plain_numbers_get_the_precision_of_the_model(double: bool) -> None:
    """Floats, arrays and lists, in memory and read, with losses of one and of several outputs."""
    rows = np.random.default_rng(0).normal(size=(20, 4))
    targets = rows[:, :2] @ np.ones((2, 2))
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.5, steps=2)
    listed = [(row.tolist(), target) for row, target in zip(rows, targets, strict=True)]
    single = [(row, float(target[0])) for row, target in zip(rows, targets, strict=True)]
    for data, outputs in (((rows, targets), 2), (listed, 2), (single, 1)):
        model = nn.Linear(4, outputs)
        model = model.double() if double else model
        goal = nn.MSELoss() if outputs == 2 else lambda found, y: nn.functional.mse_loss(found[:, 0], y)
        assert list(make_private(model, goal, data, mechanism)) == [1, 2]


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.L1Loss(), nn.SmoothL1Loss(), nn.BCEWithLogitsLoss()], ids=repr)
def test_targets_in_double_precision_are_no_mixing(loss: nn.Module) -> None:
    data = torch.randn(30, 4), torch.rand(30, 3, dtype=torch.float64)
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.5, steps=1)
    make_private(nn.Linear(4, 3), loss, data, mechanism).step()


# -- what goes wrong in the middle -------------------------------------------------------------------------------------


def broken(number: int, example: Any) -> Any:
    if number == 17:
        raise OSError("secret.png is cut short")
    return example


@pytest.mark.parametrize("workers", [0, 2])
def test_an_example_that_cannot_be_read_is_named_and_costs_nothing(tmp_path: Path, workers: int) -> None:
    with Ledger(tmp_path / "ledger.jsonl", data="tiny") as book:
        private = run_of(Table(broken), gaussian(5, rate=1.0), ledger=book, workers=workers)
        before = flat(private.parameters)
        for _ in range(2):  # the next step asks for it again
            with refused(Unreadable, match=r"example 17 cannot be read \(OSError\)") as caught:
                private.step()
            assert "secret" not in str(caught.value)
            assert caught.value.__suppress_context__ or caught.value.__context__ is None
        assert (private.steps_paid, private.num_updates, book.spent(private.mechanisms[0])) == (0, 0, 0)
        assert all(p.grad is None for p in private.parameters)
        assert torch.equal(flat(private.parameters), before)


class Dying(Table):
    """Whoever reads example 5 while the file is there is killed."""

    def __init__(self, flag: Path) -> None:
        super().__init__()
        self.flag = flag

    def __getitem__(self, number: int) -> Any:
        if number == 5 and self.flag.exists() and torch.utils.data.get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(number)


def test_a_worker_that_dies_loses_nothing_and_releases_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flag = tmp_path / "kill"
    with Ledger(tmp_path / "ledger.jsonl", data="tiny") as book:
        private = run_of(Dying(flag), gaussian(6, rate=1.0), ledger=book, workers=2, chunk=8)
        sums = watched(monkeypatch)
        private.step()
        flag.touch()
        steps = 1
        with refused(Unreadable, match="a process that reads examples died"):
            while steps < 6:  # what was read ahead may still be used
                private.step()
                steps += 1
        assert len(sums) == private.num_updates == book.spent(private.mechanisms[0]) == steps < 6
        flag.unlink()
        list(private)  # goes on, with new workers
        assert len(sums) == private.num_updates == book.spent(private.mechanisms[0]) == 6
        for total in sums[1:]:
            torch.testing.assert_close(total, sums[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("count", [39, 41])
def test_a_data_set_whose_length_changes_is_refused(count: int) -> None:
    data = Table()
    private = run_of(data, gaussian(5, rate=0.5))
    private.step()
    data.count = count
    with refused(Unreadable, match=f"had 40 examples and has {count} now"):
        list(private)
    assert private.num_updates == 1
    data.count = 40
    assert list(private)[-1] == 5


class Augmented(Table):
    """A picture that is changed a little each time it is read."""

    def __getitem__(self, number: int) -> Any:
        x, y = super().__getitem__(number)
        return x + torch.randn(3).double(), y


@pytest.mark.parametrize("workers", [0, 2])
def test_augmentation_draws_anew(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    """The same index may be read with another content: each step sees a new one; with a seed it can be repeated."""
    sums = watched(monkeypatch)
    for _ in range(2):
        torch.manual_seed(0)
        list(run_of(Augmented(), gaussian(2, rate=1.0), workers=workers, seed=4, chunk=8))
    assert not torch.allclose(sums[0], sums[1])
    assert torch.equal(torch.stack(sums[:2]), torch.stack(sums[2:]))


# -- workers and keys --------------------------------------------------------------------------------------------------


class Curious(Table):
    """Draws from the cipher of every generator that it finds in its process, and keeps a note."""

    def __init__(self, notes: Path) -> None:
        super().__init__()
        self.notes, self.found = notes, list[Generator]()

    def __getitem__(self, number: int) -> Any:
        if torch.utils.data.get_worker_info() is not None:
            # one whose making was refused has no key, and waits for the collector; looked for once, which takes long
            self.found = self.found or [g for g in gc.get_objects() if type(g) is Generator and hasattr(g, "_stream")]
            drawn = [int.from_bytes(g._stream.update(bytes(8)), "little") for g in self.found]
            (self.notes / f"{os.getpid()}-{number}").write_text(" ".join(map(str, drawn)))
        return super().__getitem__(number)


def test_workers_have_no_key_of_any_generator(tmp_path: Path) -> None:
    """They are forked, and find generators in their memory; none of them draws what those of the run draw."""
    private = run_of(Curious(tmp_path), gaussian(2, rate=0.5), workers=1)
    secret = os.urandom(32)
    ours = {purpose: Generator(purpose=purpose, secret=secret) for purpose in ("noise", "sampling")}
    private._noise, private._sampling = ours["noise"], ours["sampling"]
    list(private)
    drawn = {word for note in tmp_path.iterdir() for word in note.read_text().split()}
    assert len(drawn) > 10
    for purpose in ours:
        stream = Generator(purpose=purpose, secret=secret).random_words(200_000)
        assert not drawn & set(map(str, stream.tolist()))


# -- what is no data set -----------------------------------------------------------------------------------------------


class Endless(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        yield from zip(*examples(), strict=True)


def test_what_cannot_be_drawn_from_is_refused() -> None:
    for entrance in (
        run_of,
        lambda data: plan(network(), data, epsilon=1, delta=1e-3, batch=4, steps=1),
    ):
        with refused(InvalidInput, match=r"Endless gives examples in an order of its own.*\n\n.*__getitem__"):
            entrance(Endless())
        with refused(InvalidInput, match=r"a DataLoader draws batches of its own.*\n\n.*give the data set"):
            entrance(DataLoader(Table()))
        with refused(InvalidInput, match="the data set is empty"):
            entrance(Table.__new__(Empty))
        with refused(InvalidInput, match="which do not fit"):
            entrance((examples()[0], examples()[1][:-1]))
    with refused(InvalidInput, match="in memory, where nothing is read"):
        run_of(examples(), workers=2)
    with refused(InvalidInput, match="in memory, where nothing is read"):
        run_of(examples(), collate_fn=default_collate)
    with refused(InvalidInput, match="workers"):
        run_of(Table(), workers=-1)


class Empty(Table):
    def __len__(self) -> int:
        return 0


def test_a_plan_takes_its_rate_from_a_data_set() -> None:
    found = plan(network(), Table(), epsilon=2.0, delta=1e-3, batch=8, epochs=2)
    assert (found.rate, found.steps, found.encoder.dim) == (8 / 40, 10, DIM)


# -- files on disk -----------------------------------------------------------------------------------------------------


class Pictures(Dataset):
    """A folder of pictures, each opened when it is asked for; the class is in the name."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.png"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        pixels = np.array(Image.open(self.paths[number]))
        return torch.from_numpy(pixels).permute(2, 0, 1).double() / 255, int(self.paths[number].stem[-1])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_folder_of_pictures_trains_as_its_tensors_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    made = np.random.default_rng(0)
    for number in range(30):
        pixels = made.integers(0, 256, (6, 5, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number:03d}-{number % 3}.png")
    data = Pictures(tmp_path)
    tensors = tuple(
        map(torch.stack, zip(*((x, torch.tensor(y)) for x, y in map(data.__getitem__, range(30))), strict=True))
    )
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 4 * 3, 3)).double()
    mechanism = plan(model, data, epsilon=2.0, delta=1e-3, batch=12, epochs=2)
    sums = watched(monkeypatch)
    for source, options in ((tensors, {}), (data, {"workers": workers, "chunk": 5})):
        list(make_private(model, LOSS, source, mechanism, seed=2, **options))
    half = len(sums) // 2
    torch.testing.assert_close(torch.stack(sums[half:]), torch.stack(sums[:half]), rtol=1e-9, atol=1e-12)


# -- Hugging Face ------------------------------------------------------------------------------------------------------


def test_a_hugging_face_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets  # noqa: PLC0415 - takes two seconds

    words = Words()
    columns = {"tokens": [row.tolist() for row in words.rows], "labels": [int(row[0]) % 2 for row in words.rows]}
    data = datasets.Dataset.from_dict(columns)
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.6, steps=2)
    sums = watched(monkeypatch)
    for source, workers in ((words, 0), (data, 0), (data, 2), (data.with_format("torch"), 0)):
        torch.manual_seed(0)
        list(make_private(MeanOfWords().double(), by_words, source, mechanism, workers=workers, seed=1))
    for again in sums[2:4], sums[4:6], sums[6:]:
        torch.testing.assert_close(torch.stack(again), torch.stack(sums[:2]))
    lengths: list[int] = []

    def padding(batch: dict[str, list[Any]]) -> dict[str, Any]:
        lengths.append(len(batch["tokens"]))
        longest = max(map(len, batch["tokens"]))
        tokens = [row + [0] * (longest - len(row)) for row in batch["tokens"]]
        return {"tokens": torch.tensor(tokens), "labels": torch.tensor(batch["labels"])}

    torch.manual_seed(0)
    list(make_private(MeanOfWords().double(), by_words, data.with_transform(padding), mechanism, seed=1))
    assert set(lengths) == {1}
    torch.testing.assert_close(torch.stack(sums[8:]), torch.stack(sums[:2]))
    with_text = data.add_column("text", ["secret"] * len(data))
    with refused(Unreadable, match=r"examples\['text'\]") as caught:
        make_private(MeanOfWords().double(), by_words, with_text, mechanism)
    assert "secret" not in str(caught.value)
