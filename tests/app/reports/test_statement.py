"""The statement of a run: the same facts in text, JSON, YAML and Markdown, and what nobody said is not made up."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from noisette import _io
from noisette._guarantee import CAUTIONS, PROTECTED, attack_power, rounded_up
from noisette.accounting import group_epsilon
from noisette.app import datasets
from noisette.app.recipes.tasks import Regression
from noisette.app.reports.opendp_registry import registry
from noisette.app.reports.run import Run
from noisette.app.reports.statement import Statement
from noisette.errors import InvalidInput
from noisette.mechanism import COVERED, REAL
from tests.support.command import Command
from tests.support.finished_runs import WORDS, finished
from tests.support.helpers import refused
from tests.support.small_searches import by_public_score, searched


def test_all_that_people_ask_for(noisette: Command, tmp_path: Path) -> None:
    folder = finished(tmp_path)
    run = Run.read(folder)
    text = noisette("show", folder, "--statement").out
    for word in WORDS.values():
        assert word in text
    assert "Access: not stated" in text
    assert str(tmp_path) not in text.replace(str(folder), "")
    facts = (
        f"(rounded up from {run.promise.epsilon!r})", "Delta: 1e-05", f"Training examples: {run.examples} (public)",
        "Steps: 4", f"Noise: {run.mechanism.noise!r}", f"Mechanism: {run.promise.mechanism_hash}", "LowPass()",
        "Data set: table.csv", "central", "Audit: none", "Tuning: the ledger has no search", "Stamps: none",
    )  # fmt: skip
    for fact in facts:
        assert fact in text, fact
    value = noisette("show", folder, "--statement", "--json").json
    assert value["epsilon"] == run.promise.epsilon == _io.record(folder / "guarantee.json")["epsilon"]
    assert (value["flags"], len(value["meaning"])) == ([], 4)
    assert value["statement"]["about"]["Access"] == "not stated"


def test_low_bits_are_unprotected_where_the_arithmetic_is_not_covered(tmp_path: Path) -> None:
    """And where it is, the statement does not take back what it has promised."""
    run = Run.read(finished(tmp_path))
    told = {
        arithmetic: "low bits" in " ".join(Statement(_with(run, arithmetic=arithmetic)).unprotected)
        for arithmetic in (COVERED, REAL)
    }
    assert told == {COVERED: False, REAL: True}
    assert run.promise.arithmetic == COVERED


def test_no_batch_is_said_to_be_larger_than_the_data(tmp_path: Path) -> None:
    run = Run.read(finished(tmp_path))
    assert run.examples is not None
    facts = dict(Statement(replace(run, recipe=run.recipe.changed(batch=8192))).section("training").facts)
    assert facts["Expected batch"].startswith(f"{run.examples}, ")
    facts = dict(Statement(run).section("training").facts)
    assert facts["Expected batch"].startswith(f"{run.recipe.batch}, ")


def test_one_row_is_protected_where_nobody_said_whose_they_are(noisette: Command, tmp_path: Path) -> None:
    """Nothing says or implies that a person has one row; what is left to somebody with several is said in numbers."""
    folder = finished(tmp_path)
    run = Run.read(folder)
    noisette("report", folder, "--yaml", "r.yaml", "--markdown", "c.md")
    forms = [(folder / "page.html").read_text(), Path("r.yaml").read_text(), Path("c.md").read_text()]
    forms = [" ".join(re.sub(r"\\|\n", " ", text).split()) for text in (*forms, Statement(run).to_text())]
    for size in (2, 5, 10):
        least = group_epsilon(run.mechanism, size, run.promise.delta)
        assert all(f"epsilon {rounded_up(least)} for {size} rows" in text for text in forms)
    for text in forms:
        assert "one row; nobody has said whose rows are whose" in text
        assert "ne example a person" not in text
        assert not re.search(r"(?i)people in the data can|for one person|: one;", text)
    assert "rows in the data can be found" in forms[0]
    assert _io.record(folder / "guarantee.json")["protects"] == PROTECTED[False]


def test_test_rows_are_counted_and_not_said_to_be_protected(noisette: Command, tmp_path: Path) -> None:
    folder = finished(tmp_path)
    run = Run.read(folder)
    targets = datasets.load(run.recipe.data).test_targets
    most = max(Counter(targets.tolist()).values()) / len(targets)
    text = Statement(run).to_text()
    assert f"on {len(targets)} test rows, which are not protected; the same label for all of them" in text
    assert f"whichever is best, gives {most:.2%}" in text
    assert f"The {len(targets)} test rows: the model is measured on them without noise, and whoever" in text
    noisette("report", folder)
    assert "public test" not in text + (folder / "page.html").read_text()
    written = _io.record(folder / "guarantee.json")
    (folder / "guarantee.json").write_text(json.dumps({**written, "test": None}))
    assert "how many is not recorded" in Statement(Run.read(folder)).to_text()
    (folder / "guarantee.json").write_text(json.dumps({**written, "test": {"examples": -1, "constant": 0.5}}))
    with refused(InvalidInput, match=r"in .*guarantee\.json, examples is"):
        Run.read(folder)


def test_of_numbers_the_best_constant_is_the_median() -> None:
    told = Regression(0.0, 10.0).constant(torch.tensor([[-1.0], [-1.0], [0.5], [1.0], [-0.8]]))
    truth = np.array([0.0, 0.0, 7.5, 10.0, 1.0])
    assert told == pytest.approx(np.abs(truth - np.median(truth)).mean(), abs=1e-6)
    assert told <= min(np.abs(truth - guess).mean() for guess in np.linspace(0, 10, 101)) + 1e-6


def _with(run: Run, **changes: Any) -> Run:
    return replace(run, promise=replace(run.promise, **changes))


def test_numbers_are_those_of_the_whole_curve(tmp_path: Path) -> None:
    run = Run.read(finished(tmp_path))
    statement = Statement(run)
    for alarms in (0.01, 0.1):
        assert alarms < run.found(alarms) < attack_power(run.promise.epsilon, run.promise.delta, alarms)
    assert statement.tests[0][1] in statement.meaning[1]


FIELDS: dict[str, Any] = {
    "url_slug": r"\w+(-\w+)*-\d{4}", "status": {"Draft"}, "tier": {1, 2, 3},
    "deployment": {
        "basic": {
            "name": str, "data_curators": list, "intended_use": str, "data_product_type": {"Machine learning model"},
            "data_product_region": str, "description": str, "publication_date": r"\d{4}-\d\d-\d\d",
        },
        "dp_variant": {
            "variant_name": {"Approximate DP"}, "data_domain": str, "unprotected_quantities": str,
        },
        "privacy_loss": {
            "privacy_unit": {"record-level", "user-level"}, "privacy_unit_details": str,
            "privacy_parameters": {"epsilon": float, "delta": float}, "privacy_parameters_details": str,
        },
        "deployment_model": {
            "model_name": {"Central"}, "model_name_details": str, "release_type": {"One release"},
            "release_type_details": str, "data_source_type": {"Static"}, "access_type": {"Non-interactive"},
            "access_type_details": str,
        },
        "accounting": {"post_processing": str, "composition": str},
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": str, "mechanisms": str, "justification": str,
        },
        "administrative": {"notes": str, "registry_authors": list},
    },
}  # fmt: skip
"""The fields that the registry has had since July 2026, and it takes no others; with the types of their values, and
those of which there are only some: a set, or a pattern."""


def check_fields(found: Any, wanted: Any, where: str = "") -> None:
    """`attack_power` has these fields, in this order, and no others, and nothing is empty."""
    if isinstance(wanted, dict):
        assert list(found) == list(wanted), where
        for name, one in wanted.items():
            check_fields(found[name], one, f"{where}/{name}")
    elif isinstance(wanted, type):
        assert type(found) is wanted, where
        assert found, where
        assert wanted is not list or all(isinstance(one, str) and one for one in found), where
    else:
        assert found in wanted if isinstance(wanted, set) else re.fullmatch(wanted, found), where


@pytest.mark.parametrize("kind", ["run", "people", "search"])
def test_the_registry_has_its_fields_and_all_that_people_ask_for(kind: str, tmp_path: Path) -> None:
    if kind == "search":
        winner = searched(tmp_path / "runs", **by_public_score(tmp_path))[1].winner
        assert winner is not None
        run = Run.read(winner)
    else:
        run = Run.read(finished(tmp_path, **({"unit": "a"} if kind == "people" else {})))
    statement = Statement(run)
    text = registry(statement)
    entry = yaml.safe_load(text)
    check_fields(entry, FIELDS)
    assert not [token for token in yaml.scan(text) if getattr(token, "style", None) == ">"], "the registry takes none"
    told = entry["deployment"]
    assert told["privacy_loss"]["privacy_parameters"] == {"epsilon": run.promise.epsilon, "delta": run.promise.delta}
    assert told["privacy_loss"]["privacy_unit"] == ("user-level" if kind == "people" else "record-level")
    assert told["implementation"]["mechanisms"] == repr(run.search or run.mechanism)
    assert ("the epsilon covers the whole search" in told["implementation"][next(iter(told["implementation"]))]) == (
        kind == "search"
    )
    more = told["administrative"]["notes"]
    for fact in (
        f": {run.examples:,} (public)",
        "Rows of a person: ",
        "Sampling: Poisson",
        f"rate of {run.mechanism.rate:.6g}",
        f"Steps: {run.mechanism.steps}",
        f"Encoder: {run.mechanism.encoder!r}",
        f"Noise: {run.mechanism.noise!r}",
        f"Accountant: pld ({run.promise.basis})",
        "Arithmetic: ",
        "Audit: none",
        f"Mechanism: {run.promise.mechanism_hash}",
        "Versions: noisette ",
        "with 1% false alarms: finds at most ",
        "with 10% false alarms: finds at most ",
    ):
        assert fact in more, fact
    if kind != "search":
        assert told["basic"]["name"] == WORDS["name"]
        assert told["basic"]["data_curators"] == [WORDS["curator"]]
        assert told["dp_variant"]["data_domain"] == WORDS["domain"]
    assert told["deployment_model"]["access_type_details"] == "not stated"


@pytest.mark.parametrize(
    ("options", "flags"),
    [({"seed": 1}, ["reproducible"]), ({"unsafe": True, "seed": 1}, ["reproducible", "unsafe"])],
)
def test_stamps_come_first_in_every_form(
    noisette: Command, tmp_path: Path, options: dict[str, object], flags: list[str]
) -> None:
    folder = finished(tmp_path, **options)
    assert noisette("show", folder, "--statement", "--json").json["flags"] == flags
    told = noisette("report", folder, "--yaml", "r.yaml", "--markdown", "c.md", "--json").json
    assert told["flags"] == flags
    page = Path(told["page"]).read_text()
    text = noisette("show", folder, "--statement").out
    for stamp in flags:
        assert page.index(f"<strong>{stamp}</strong>") < page.index("What is promised")
        for form in (page, Path("r.yaml").read_text(), Path("c.md").read_text(), text):
            before, there, _ = form.partition(CAUTIONS[stamp])
            assert there, f"the caution of {stamp} is missing"
            assert form is page or "psilon" not in before


def test_a_ledger_of_several_runs(tmp_path: Path) -> None:
    """All runs together, as the ledger is now; where it is gone, as it was when this run ended."""
    shared = tmp_path / "all.jsonl"
    first, second = finished(tmp_path, shared=shared), finished(tmp_path, shared=shared, seed=1)
    own, spent = Run.read(first).promise, Run.read(first).spent
    assert spent is not None
    assert spent == Run.read(second).spent
    assert (spent.steps, spent.flags) == (8, ("reproducible",))
    assert spent.epsilon is not None
    assert spent.epsilon > own.epsilon
    assert "(reproducible) at delta 1e-05 for 8 steps in all" in Statement(Run.read(first)).to_text()
    shared.unlink()
    then = Run.read(first).spent
    assert then is not None
    assert (then.epsilon, then.steps) == (own.epsilon, None)
    assert "when this run ended" in Statement(Run.read(first)).to_text()


def test_an_audit_that_is_kept_with_the_run(noisette: Command, tmp_path: Path) -> None:
    folder = finished(tmp_path)
    mechanism = Run.read(folder).mechanism
    told = {"verdict": "consistent with the claim", "level": 1e-4, "mechanism": repr(mechanism.replace(steps=1))}
    (folder / "audit.json").write_text(json.dumps(told))
    assert "Audit: consistent with the claim, level 0.0001" in noisette("show", folder, "--statement").out
    (folder / "audit.json").write_text(json.dumps(told | {"verdict": "REFUTED"}))
    noisette("report", folder)
    assert "<strong>refuted</strong>" in (folder / "page.html").read_text()
    other = repr(mechanism.replace(rate=mechanism.rate / 2))
    (folder / "audit.json").write_text(json.dumps(told | {"mechanism": other}))
    noisette("show", folder, "--statement").assert_refused("not an audit of the mechanism of this run", "move the file")


def test_a_run_without_test_part_or_versions(tmp_path: Path) -> None:
    """Folders that an earlier noisette wrote lack what it did not write."""
    folder = finished(tmp_path, statement={}, data=f"csv:{tmp_path / 'table.csv'}:label")
    written = _io.record(folder / "guarantee.json")
    del written["versions"], written["examples"]
    (folder / "guarantee.json").write_text(json.dumps(written))
    text = Statement(Run.read(folder)).to_text()
    for fact in ("Versions: not recorded", "Training examples: not recorded", "not measured", "Name: not stated"):
        assert fact in text
    shutil.rmtree(folder)


def test_the_winner_of_a_search_tells_its_price(noisette: Command, tmp_path: Path) -> None:
    folder, tuned = searched(tmp_path / "runs", **by_public_score(tmp_path))
    assert tuned.winner is not None
    run = Run.read(tuned.winner)
    assert run.examples == 50
    assert run.versions.keys() == {"noisette", "numpy", "scipy", "torch"}
    assert run.promise == tuned.guarantee
    text = noisette("show", tuned.winner, "--statement").out
    assert "and how they were chosen" not in text, "that is protected"
    assert "How it chose among them is protected" in text
    assert "for the whole search that chose it" in text
    assert "Tuning: chosen by a" in text
    assert "from 3 runs on average, whose number was drawn by the geometric law" in text
    assert noisette("report", tuned.winner).code == 0
    assert noisette("report", "runs").code == 0
    page = (tmp_path / "runs" / "index.html").read_text()
    assert f"ε&nbsp;≤&nbsp;{rounded_up(tuned.guarantee.epsilon)}" in page, "a search and its winner are paid for once"
    assert folder.name not in page
    shutil.rmtree(tuned.winner)
    (tmp_path / "runs" / "index.html").unlink()
    finished(tmp_path)
    noisette("report", "runs")
    page = (tmp_path / "runs" / "index.html").read_text()
    assert f"ε&nbsp;≤&nbsp;{rounded_up(tuned.guarantee.epsilon)}" in page, "what a search has paid stays paid"


def test_the_winner_of_a_search_tells_its_test_rows(tmp_path: Path) -> None:
    options = by_public_score(tmp_path)
    options["recipe"] = options["recipe"].changed(data=f"{options['recipe'].data}:0.2")
    winner = searched(tmp_path / "runs", **options)[1].winner
    assert winner is not None
    run = Run.read(winner)
    rows = len(datasets.load(run.recipe.data).test_targets)
    assert rows > 0
    assert f"on {rows} test rows, which are not protected" in Statement(run).to_text()


def test_a_person_with_all_their_examples(tmp_path: Path) -> None:
    """Who is protected, and how many there are, as the mechanism draws them."""
    folder = finished(tmp_path, unit="a")
    run = Run.read(folder)
    assert run.person
    text = Statement(run).to_text()
    for fact in ("Privacy unit: one person with all their rows", f"People to train on: {run.examples}", "Groups:"):
        assert fact in text
    assert "all your examples" in text
    assert "your example " not in text
    assert "People with several examples" not in text
    assert run.promise.explain().splitlines()[3] == Statement(run).meaning[3]
    assert "user-level" in registry(Statement(run))
