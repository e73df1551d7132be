"""A search from its plan to its winner: what is paid, what is kept, what is shown, and what a kill leaves."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from noisette import Mechanism, _io, guarantee, read_ledger
from noisette._gradients import chunk_policy
from noisette.accounting import Ledger
from noisette.accounting.num_trials import GeometricNumTrials, LogarithmicNumTrials, NumTrials, PoissonNumTrials
from noisette.app.datasets import Dataset
from noisette.app.recipes import Recipe
from noisette.app.runs import ModelInputs, load, metrics, new_folder, reopen
from noisette.app.runs.holdout import holdout_mask, split
from noisette.app.tuning import LogUniform, TuneResult, resume_search, trial, tune
from noisette.app.tuning.plan import Plan
from noisette.app.tuning.search_space import Candidates
from noisette.app.tuning.trial import _right, best, make, place, score, score_at
from noisette.errors import InvalidInput, LedgerError, NoisetteError
from noisette.mechanism import COVERED, REAL
from noisette.random import Generator
from tests.support.small_searches import GRID, TINY, by_public_score, of_people, prepared, searched
from tests.unit.accounting.test_best_of_price import chances, reference_price

PUBLIC = {"search.json", "ledger.jsonl", "result.json"}
WINNER = {
    "recipe.toml",
    "mechanism.toml",
    "settings.json",
    "model.pt",
    "model.safetensors",
    "ledger.jsonl",
    "metrics.jsonl",
    "guarantee.json",
}


def test_a_search_and_its_price(tmp_path: Path) -> None:
    folder, found = searched(tmp_path)
    plan = Plan.read(folder)
    assert 2.9 < found.guarantee.epsilon <= 3.0
    assert found.guarantee.epsilon == guarantee(plan.search, 1e-5).epsilon
    assert found.single_run_epsilon < 0.85 * found.guarantee.epsilon
    assert found.guarantee.flags == ("reproducible",)
    assert read_ledger(folder / "ledger.jsonl").mechanisms() == (plan.search,)
    assert found.winner is not None
    assert {file.name for file in found.winner.iterdir()} == WINNER
    told = json.loads((found.winner / "guarantee.json").read_text())
    assert (told["epsilon"], told["single_run_epsilon"]) == (found.guarantee.epsilon, found.single_run_epsilon)
    assert read_ledger(found.winner / "ledger.jsonl").guarantee(1e-5).epsilon == found.guarantee.epsilon
    assert [point.epsilon for point in metrics.read(found.winner)] == [found.guarantee.epsilon]
    chosen = Recipe.load(str(found.winner / "recipe.toml"))
    assert chosen.lr == (found.settings or {})["lr"]
    assert load(found.winner)(torch.zeros(1, 1, 8, 8)).shape == (1, 10)
    with pytest.raises(InvalidInput, match="was chosen by a search, and is complete"):
        reopen(found.winner)
    assert resume_search(folder) == found, "asked again, it says the same"


@pytest.mark.filterwarnings("ignore::noisette._gradients.Inexact")
def test_inexact_runs_are_told_of_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search is covered as its runs are, whichever of them it makes; a machine that rounds otherwise is refused."""
    options = by_public_score(tmp_path) | {"epsilon": 8.0}
    sound = prepared(tmp_path / "sound", **options)
    assert Plan.read(sound).promise.arithmetic == COVERED
    monkeypatch.setattr(chunk_policy, "find_invariant_chunk_sizes", lambda *_: None)
    folder, found = searched(tmp_path / "not", **options)
    assert (found.guarantee.arithmetic, "inexact" in found.guarantee.flags) == (REAL, True)
    assert "inexact" in read_ledger(folder / "ledger.jsonl").guarantee(1e-3).flags
    with pytest.raises(InvalidInput, match="may change how others are rounded"):
        resume_search(sound, seed=4)


def test_the_winner_is_the_best_by_its_score(tmp_path: Path) -> None:
    folder, found = searched(tmp_path / "runs", **by_public_score(tmp_path), trials=GeometricNumTrials(4), seed=8)
    scores = [score_at(one) for one in sorted((folder / "private").glob("trial-*"))]
    assert len(scores) > 1
    assert found.score == max(scores)
    won = place(folder, scores.index(max(scores)))
    assert found.winner is not None
    assert (won / "model.pt").read_bytes() == (found.winner / "model.pt").read_bytes()


def check_nothing_private_is_public(folder: Path, told: str) -> None:
    """Neither how many runs there were, nor what they scored, in any file but those of the private part."""
    private = [json.loads((one / "score.json").read_text())["score"] for one in (folder / "private").glob("trial-*")]
    losers = sorted(set(private))[:-1]
    assert losers, "the test has losers"
    assert {file.name for file in folder.iterdir()} == PUBLIC | {"private"}
    texts = [(folder / name).read_text() for name in PUBLIC]
    texts += [path.read_text() for run in folder.parent.iterdir() if run != folder for path in run.glob("*.*json*")]
    for text in [told, *texts]:
        assert not [value for value in losers if str(value)[:8] in text], "a loser's score is public"
        assert f'"runs": {len(private)}' not in text, "the number of runs is public"
    assert set(json.loads((folder / "result.json").read_text())) == {"winner", "settings", "score"}


def test_nothing_private_is_public(tmp_path: Path) -> None:
    folder, found = searched(tmp_path, trials=GeometricNumTrials(4), seed=8)
    check_nothing_private_is_public(folder, repr(found))
    assert (folder / "private").stat().st_mode & 0o077 == 0
    assert "PRIVATE" in (folder / "private" / "PRIVATE.txt").read_text()
    with pytest.raises(InvalidInput, match="is one of a search, and private"):
        load(place(folder, 0))


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_ever_has_access_to_the_private_part(
    tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the moment that the folder is there, whatever is written to it and whatever the umask lets through."""
    seen, mkdir, write = [], os.mkdir, _io.write

    def made(path: Any, *rest: Any, **options: Any) -> None:
        mkdir(path, *rest, **options)
        if Path(path).name == "private":
            seen.append(Path(path).stat().st_mode & 0o077)

    def written(path: Path, data: bytes, **options: Any) -> None:
        seen.extend(one.stat().st_mode & 0o077 for one in path.parents if one.name == "private")
        write(path, data, **options)

    monkeypatch.setattr(os, "mkdir", made)
    monkeypatch.setattr(_io, "write", written)
    before = os.umask(umask)
    try:
        folder = new_folder(tmp_path, "search", {"a.json": "{}", "private/b/c.json": "{}"}, closed="private")
    finally:
        os.umask(before)
    assert len(seen) == 2
    assert not any(seen)
    assert stat.S_IMODE((folder / "private").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "trials",
    [
        GeometricNumTrials(3),
        *(pytest.param(law, marks=pytest.mark.slow) for law in (LogarithmicNumTrials(3), PoissonNumTrials(2))),
    ],
    ids=repr,
)
def test_the_number_of_runs_follows_the_law(trials: NumTrials, tmp_path: Path) -> None:
    """Searches that are prepared by this very code; chi-square at a level of one in a hundred thousand."""
    counts, options = Counter(), by_public_score(tmp_path)
    for seed in range(24):
        folder = prepared(tmp_path / "runs", **options, trials=trials, seed=1000 + seed)
        counts[min(len(list((folder / "private").glob("trial-*"))), 5)] += 1
    expected = 24 * np.append(chances(trials)[:5], chances(trials)[5:].sum())
    drawn = np.array([counts[k] for k in range(6)])
    used = expected > 0
    assert not drawn[~used].any()
    statistic = ((drawn - expected)[used] ** 2 / expected[used]).sum()
    assert stats.chi2.sf(statistic, used.sum() - 1) > 1e-5, "the number of runs does not follow its law"


def test_candidates_are_drawn_alike() -> None:
    generator, several = Generator(seed=2), Candidates.of(GRID)
    drawn = Counter(several.draw(generator)["lr"] for _ in range(3000))
    assert set(drawn) == set(GRID["lr"])
    assert stats.chisquare(list(drawn.values())).pvalue > 1e-4


def test_no_run_at_all(tmp_path: Path) -> None:
    """A Poisson number may be 0: paid in full, and nothing is published."""
    seed = next(seed for seed in range(100) if _drawn(seed) == 0)
    folder, found = searched(tmp_path / "runs", **by_public_score(tmp_path), trials=PoissonNumTrials(1), seed=seed)
    assert (found.winner, found.settings, found.score) == (None, None, None)
    assert read_ledger(folder / "ledger.jsonl").mechanisms() == (Plan.read(folder).search,)
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name]


def _drawn(seed: int) -> int:
    return PoissonNumTrials(1).draw(Generator(seed, purpose="search"))


def test_ties_and_scores_that_are_not_numbers() -> None:
    nan = math.nan
    assert [best(one) for one in ([], [nan], [nan, 0.1], [0.3, 0.3, 0.2], [nan, nan], [-math.inf, nan])] == [
        None, 0, 1, 0, 0, 0,
    ]  # fmt: skip


def test_a_shared_ledger_has_one_entry(tmp_path: Path) -> None:
    shared = tmp_path / "all.jsonl"
    folder = prepared(tmp_path / "runs", shared=shared)
    plan = Plan.read(folder)
    assert read_ledger(shared).mechanisms() == (plan.search,), "paid before anything is trained"
    found = resume_search(folder, seed=4)
    assert read_ledger(shared).mechanisms() == (plan.search,)
    assert found.winner is not None
    told = json.loads((found.winner / "guarantee.json").read_text())
    assert told["ledger_epsilon"] == found.guarantee.epsilon


def test_no_run_without_payment(tmp_path: Path) -> None:
    folder = prepared(tmp_path / "runs", **by_public_score(tmp_path))
    (folder / "ledger.jsonl").unlink()
    with pytest.raises(LedgerError, match="is missing"):
        make(folder, None, None, 0)
    Ledger(folder / "ledger.jsonl", data="digits").close()
    with pytest.raises(LedgerError, match="is not paid for"):
        make(folder, None, None, 0)
    assert not (place(folder, 0) / "ledger.jsonl").exists()


def test_paid_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the first run is made, the whole search is on disk, also where a kill came before the payment."""
    folder, seen = prepared(tmp_path / "runs", **by_public_score(tmp_path)), []

    def stop(*_: Any, **__: Any) -> None:
        seen.append(read_ledger(folder / "ledger.jsonl").mechanisms())
        raise KeyboardInterrupt

    (folder / "ledger.jsonl").unlink()
    monkeypatch.setattr(trial, "reopen", stop)
    with pytest.raises(KeyboardInterrupt):
        resume_search(folder)
    assert seen == [(Plan.read(folder).search,)]


def test_killed_and_resumed(tmp_path: Path) -> None:
    """kill -9 in the middle: the same runs with the same settings, paid once."""
    folder = prepared(tmp_path / "runs", **by_public_score(tmp_path), trials=PoissonNumTrials(4), seed=5)
    before = {path: path.read_text() for path in (folder / "private").glob("*/candidate.json")}
    assert len(before) > 2
    assert _dies(partial(resume_search, folder, seed=5), 1, "score.json")
    kept = {path: path.read_text() for path in folder.glob("private/*/score.json")}
    assert len(kept) == 1
    paid = (folder / "ledger.jsonl").read_bytes()
    found = resume_search(folder, seed=5)
    assert found.winner is not None
    assert (folder / "ledger.jsonl").read_bytes() == paid
    assert {path: path.read_text() for path in (folder / "private").glob("*/candidate.json")} == before
    assert all(path.read_text() == text for path, text in kept.items()), "what was scored is not scored again"


def test_killed_while_the_winner_is_published(tmp_path: Path) -> None:
    """kill -9 before each file or folder gets its name: there is one winner, the same, and nothing is paid again."""
    folder = prepared(root := tmp_path / "runs", **by_public_score(tmp_path))
    for number in range(len(list(folder.glob("private/trial-*")))):
        make(folder, 4, None, number)
    paid, moments = (folder / "ledger.jsonl").read_bytes(), 0
    while _dies(partial(resume_search, folder), moments):
        shutil.copytree(root, resumed := tmp_path / f"resumed {moments}")
        found = resume_search(resumed / folder.name)
        assert [one.name for one in resumed.glob("tiny-0*")] == ["tiny-0001"], "there is another winner"
        assert found.winner == resumed / "tiny-0001"
        assert {file.name for file in found.winner.iterdir()} == WINNER
        assert (resumed / folder.name / "ledger.jsonl").read_bytes() == paid
        shutil.rmtree(root / "tiny-0001", ignore_errors=True)
        moments += 1
    assert moments == len(WINNER) + 2, "each file of the winner, its folder, and what the search says of it"


def _dies(work: Callable[[], object], after: int, ending: str = "") -> bool:
    """Whether a process at this `work` is killed before it gives a file its name, `after` others having theirs.

    Only names with this `ending` count.
    """
    child = os.fork()
    if not child:
        names = itertools.count()

        def watch(event: str, arguments: Any) -> None:
            if event == "os.rename" and str(arguments[1]).endswith(ending) and next(names) == after:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_what_is_gone_is_not_made_up(tmp_path: Path) -> None:
    folder, _ = searched(tmp_path)
    (folder / "result.json").unlink()
    (folder / "ledger.jsonl").rename(folder / "elsewhere")
    with pytest.raises(LedgerError, match="is missing"):
        resume_search(folder)
    (folder / "elsewhere").rename(folder / "ledger.jsonl")
    (folder / "private").rename(folder / "gone")
    with pytest.raises(InvalidInput, match=r"the private part of .* is gone"):
        resume_search(folder)
    text = (folder / "search.json").read_text()
    (folder / "search.json").write_text(text.replace("noisette search 1", "noisette search 0"))
    with pytest.raises(InvalidInput, match="of another version"):
        resume_search(folder)


# -- scores ------------------------------------------------------------------------------------------------------------


def test_a_private_score_has_the_noise_that_was_planned(tmp_path: Path) -> None:
    """A trained run scored 300 times: a KS test against the law, at a level of one in a million."""
    folder = prepared(tmp_path, seed=None)
    plan = Plan.read(folder)
    assert plan.search.score is not None
    opened = reopen(place(folder, 0))
    try:
        held = opened.seen.held
        assert held is not None
        exact = _accuracy(opened.trainer.evaluated, held)
        drawn = np.array([score(plan, opened) for _ in range(300)])
    finally:
        opened.close()
    assert 0.02 < exact < 0.98
    noise = (drawn - exact) * 2 * held.sampled  # in units of half the range of one example's score
    assert stats.kstest(noise, plan.search.score.noise.cdf).pvalue > 1e-6, "the score does not have its noise"


def test_scores_do_not_come_from_test_examples(tmp_path: Path) -> None:
    """With test labels that are all wrong, the score is still that of the examples that were held out."""
    folder = prepared(tmp_path, seed=3)
    plan, opened = Plan.read(folder), reopen(place(folder, 0))
    try:
        data = opened.assembly.data
        data.test_targets.copy_((data.test_targets + 5) % 10)
        list(opened.points())
        held = opened.seen.held
        assert held is not None
        exact = _accuracy(opened.trainer.evaluated, held)
        assert plan.search.score is not None
        spread = plan.search.score.noise.known_scale / held.sampled
        assert score(plan, opened, 3) == pytest.approx(exact, abs=20 * spread), "chosen by other examples"
        assert exact > 0.5 > 0.2 > metrics.read(place(folder, 0))[-1].accuracy
    finally:
        opened.close()


def test_held_out_examples_are_not_trained_on() -> None:
    recipe = Recipe.load("digits")
    whole, parted = ModelInputs.of(recipe), ModelInputs.of(TINY.changed(held_out=0.2))
    out = holdout_mask(range(1437), 0.2)
    assert parted.held is not None
    assert torch.equal(parted.held.train_inputs, whole.data.train_inputs[out])
    assert torch.equal(parted.data.train_inputs, whole.data.train_inputs[~out])
    assert torch.equal(holdout_mask(range(1000), 0.2), holdout_mask(range(2000), 0.2)[:1000]), (
        "a slot's side is its own"
    )
    assert 0.15 < float(holdout_mask(range(5000), 0.2).float().mean()) < 0.25


def test_nobody_is_on_both_sides(tmp_path: Path) -> None:
    kept, held = split(ModelInputs.of(of_people(tmp_path)["recipe"]).data, 0.2)
    assert not set(kept.train_units or ()) & set(held.train_units or ()), "somebody is on both sides"
    assert kept.sampled + held.sampled == 150
    assert 15 < held.sampled < 45


def test_people_with_many_examples(tmp_path: Path) -> None:
    """All examples of a person are on one side, a score moves by at most one person, and the promise is for them."""
    folder, found = searched(tmp_path / "runs", **of_people(tmp_path), seed=2)
    plan, opened = Plan.read(folder), reopen(place(folder, 0))
    try:
        kept, held = opened.seen.data, opened.seen.held
        score_of = partial(score, plan, opened)
        right = _right(opened.assembly.task, opened.trainer.evaluated, held, torch.device("cpu"))
    finally:
        opened.close()
    assert found.guarantee.adjacency == "add/remove one unit with all its examples, Poisson sampling"
    assert held is not None
    assert kept.sampled + held.sampled == 150
    assert len(kept.train_inputs) + len(held.train_inputs) == 1200
    assert plan.search.runs[0].rate == 30 / kept.sampled
    assert json.loads((found.winner / "guarantee.json").read_text())["examples"] == kept.sampled
    assert right.shape == (held.sampled,)
    assert right.min() >= 0
    assert right.max() <= 1
    spread = plan.search.score.noise.known_scale / held.sampled
    assert score_of(2) == pytest.approx(float(right.mean()), abs=20 * spread)
    with pytest.raises(InvalidInput, match="at least 1/150"):
        prepared(tmp_path / "other", **of_people(tmp_path) | {"delta": 1 / 149})


def _accuracy(model: torch.nn.Module, held: Dataset) -> float:
    return float((model(held.train_inputs).argmax(dim=1) == held.train_targets).double().mean())


def test_public_scores_are_free_and_exact(tmp_path: Path) -> None:
    folder, found = searched(tmp_path / "runs", **by_public_score(tmp_path))
    assert Plan.read(folder).search.score is None
    assert found.score is not None
    assert found.score * 50 == pytest.approx(round(found.score * 50)), "an accuracy of 50 examples, without noise"


def test_what_runs_are_trained_on_is_not_public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the file is spelled, and whatever its labels are."""
    monkeypatch.chdir(tmp_path)
    options = by_public_score(tmp_path)
    for same in (options["recipe"].data, "csv:private.csv:label", f"csv:{tmp_path / 'private.csv'}:p3:0.5"):
        with pytest.raises(InvalidInput, match="is what the runs are trained on"):
            prepared(tmp_path, **options | {"public": same})


def test_runs_have_the_noise_that_the_whole_search_asks_for(tmp_path: Path) -> None:
    """What the runs will be trained with, priced by another library: as much as was asked for, as the ledger says."""
    folder = prepared(tmp_path / "runs", **by_public_score(tmp_path))
    (trained,) = {Mechanism.from_toml(one.read_text()) for one in folder.glob("private/trial-*/mechanism.toml")}
    exact = reference_price(trained, GeometricNumTrials(3), 1e-3)
    assert 2.98 < exact < 3.001, "the price of a search is another one"
    assert read_ledger(folder / "ledger.jsonl").guarantee(1e-3).epsilon == pytest.approx(exact, rel=5e-4)


# -- what can be asked for ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"candidates": {"colour": [1]}}, "'colour' is not a setting"),
        ({"candidates": {"epsilon": [1.0]}}, "'epsilon' is not a setting"),
        ({"candidates": {"lr": []}}, "no value of lr"),
        ({"candidates": {}}, "nothing to try"),
        ({"candidates": []}, "nothing to try"),
        ({"candidates": [{}]}, "nothing to try"),
        ({"candidates": {"lr": [-1.0]}}, "lr is -1.0"),
        ({"candidates": {"lr": ["fast"]}}, "lr is 'fast'"),
        ({"candidates": {"batch": LogUniform(10, 100)}}, "cannot be drawn from a law"),
        ({"candidates": {"lr": LogUniform(0.1, 1e9)}}, "no weight is as large"),
        ({"candidates": {"noise": ["Nonsense()"]}}, "is not known here"),
        ({"candidates": {"lr": [0.1] * 200, "momentum": [0.1] * 200}}, "more than 10000 points"),
        ({"epsilon": -1}, "epsilon is -1"),
        ({"delta": 0.5}, "delta is 0.5, at least 1/"),
        ({"held_out": 0.0}, "nothing is held out"),
        ({"held_out": 1.5}, "held_out is outside"),
        ({"public": "nowhere"}, "nowhere"),
        ({"device": "cuda:99"}, "cannot compute on"),
        ({"shared": Path("/dev/null")}, "/dev/null"),
        ({"public": "digits"}, "is what the runs are trained on"),
    ],
)
def test_bad_input_leaves_nothing(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(NoisetteError, match=says):
        prepared(tmp_path / "runs", **options)
    assert not (tmp_path / "runs").exists()


def test_ranges_and_lists_and_several_mechanisms(tmp_path: Path) -> None:
    """Batches and noises of different price: the search costs the worst, within the budget."""
    candidates = [{"batch": 10, "lr": LogUniform(0.5, 2)}, {"batch": 40}, {"noise": "Gaussian()", "steps": 9}]
    options = by_public_score(tmp_path)
    folder = prepared(tmp_path / "runs", **options, candidates=candidates, trials=PoissonNumTrials(4))
    plan = Plan.read(folder)
    assert len(plan.search.runs) == 3
    assert 2.8 < plan.promise.epsilon <= 3.0
    tried = [json.loads(path.read_text()) for path in folder.glob("private/*/candidate.json")]
    assert len({one["lr"] for one in tried if "lr" in one}) > 1


def test_from_python(tmp_path: Path) -> None:
    options = by_public_score(tmp_path)
    found = tune(options.pop("recipe"), {"lr": [1, 2]}, epsilon=3, trials=1, law="geometric", runs=tmp_path, **options)
    assert found.winner == tmp_path / "tiny-0001"
    assert found.guarantee.flags == ()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A real Ray with two workers on this machine, of another process, which "auto" finds, and finds no other."""
    code = "import ray, sys; ray.init(num_cpus=2, include_dashboard=False); print(1, flush=True); sys.stdin.read()"
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as short:
        monkeypatch.setenv("RAY_TMPDIR", short)  # names of sockets must be short
        with subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline(), "Ray did not start"
            yield "auto"  # it ends when its input does


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a head that `ray start` has started, as it is done on a cluster, with a token of this test."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", os.urandom(16).hex())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as short:
        command = [Path(sys.executable).with_name("ray"), "start", "--head", "--block", "--num-cpus=2"]
        options = [
            f"--port={address[10:]}",
            f"--temp-dir={short}",
            "--include-dashboard=false",
            "--disable-usage-stats",
        ]
        with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while not _listens(address):
                assert process.poll() is None, "Ray did not start"
                time.sleep(0.2)
            yield address
            process.terminate()


def _listens(address: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(address.partition(":")[2]))) == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_side_by_side_is_the_same(tmp_path: Path, cluster: str) -> None:
    """Two processes, and two workers of Ray, make the very runs that one process makes."""
    made, options = [], by_public_score(tmp_path)
    for name, how in {"one": {}, "two": {"jobs": 2}, "ray": {"ray": cluster}}.items():
        folder = prepared(tmp_path / name, **options, trials=PoissonNumTrials(4), seed=6)
        made.append(_made(folder, resume_search(folder, seed=6, **how)))
    assert made[0] == made[1] == made[2]


def _made(folder: Path, found: TuneResult) -> tuple[Any, ...]:
    return found.score, found.settings, [score_at(one) for one in sorted(folder.glob("private/trial-*"))]


@pytest.mark.slow
def test_a_cluster_by_its_address(tmp_path: Path, head: str) -> None:
    """In a process of its own, since Ray keeps the first token that it has seen."""
    made, options = [], by_public_score(tmp_path)
    for name, how in {"one": "", "ray": f", ray={head!r}"}.items():
        folder = prepared(tmp_path / name, **options, trials=PoissonNumTrials(4), seed=6)
        code = (
            "from pathlib import Path; from noisette.app.tuning import go_on; "
            f"resume_search(Path({str(folder)!r}), seed=6{how})"
        )
        subprocess.run([sys.executable, "-c", code], check=True)
        made.append(_made(folder, resume_search(folder)))
    assert made[0] == made[1]
