"""The statement of a run: every fact that people ask for, once, for text, page and model card alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from noisette._guarantee import (
    ALARMS,
    PROTECTED,
    cautions,
    percent,
    probability_in_words,
    rounded_up,
    sentences,
    together,
)
from noisette.app.recipes.recipe import WORDS
from noisette.app.reports.run import Run
from noisette.mechanism import COVERED

__all__ = ["NOT_STATED", "Fact", "Section", "Statement"]

NOT_STATED = "not stated"

Fact = tuple[str, str]
"""A label and what is said."""

UNPROTECTED = (
    "What the model has learnt about people in general, and may say about anyone, in the data or not.",
    "The number of training examples, the number of classes and the names of the labels.",
    "How long the training took and how much memory it used: whoever can measure that is outside of the promise.",
)
"""What the promise does not cover, whatever the run."""


_BITS = (
    "The low bits of what was released: the epsilon is for real numbers, and attacks on floating-point arithmetic are "
    "outside of the promise."
)
_CHOSEN = "The architecture, the settings of the training, and how they were chosen."
_SEARCHED = (
    "The architecture, and the settings that the search could choose from. How it chose among them is protected: the "
    "epsilon covers the whole search."
)
_SEVERAL = "Several rows of one person: the promise is for one row, and weakens with every further one"
_GROUPS = (
    "Groups: the promise is for one person, and weakens with every further one who is looked for together with them"
)


@dataclass(frozen=True)
class Section:
    """Facts under a title."""

    key: str
    title: str
    facts: tuple[Fact, ...]


class Statement:
    """What can be said of a finished run, from its files alone.

    `cautions` come before everything else; `meaning` has four sentences for one person.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        promise, curve = run.promise, run.curve
        self.words = {name: run.recipe.statement.get(name) or NOT_STATED for name in WORDS}
        self.cautions = cautions(promise.flags)
        self.meaning = sentences(promise.epsilon, promise.delta, run.found, curve.advantage, person=run.person)
        self.tests = tuple((f"{alarms:.0%}", percent(run.found(alarms))) for alarms in ALARMS)
        self.together = together(run.groups, promise.delta, person=run.person)
        bits = () if promise.arithmetic == COVERED else (_BITS,)
        self.unprotected = (
            *UNPROTECTED,
            _CHOSEN if run.search is None else _SEARCHED,
            self._test_rows(),
            *bits,
            f"{_GROUPS if run.person else _SEVERAL}: {self.together}.",
        )
        self.sections = (
            Section("about", "The model", self._about()),
            Section("promise", "The promise", self._promise()),
            Section("data", "The data", self._data()),
            Section("training", "The training", self._training()),
            Section("spending", "All that was spent", self._spending()),
            Section("evidence", "What it rests on", self._evidence()),
        )

    def section(self, key: str) -> Section:
        """The section called `key`."""
        return next(section for section in self.sections if section.key == key)

    @property
    def heading(self) -> str:
        """What stands above the sentences of `meaning`."""
        return f"What it means for one {'person' if self.run.person else 'row'}"

    @property
    def epsilon(self) -> str:
        """Epsilon as it is shown, rounded up."""
        return rounded_up(self.run.promise.epsilon)

    @property
    def kind(self) -> str:
        """How sure the epsilon is, in words."""
        if self.run.promise.kind == "bound":
            return "a bound: proved, with every error of its computation on the safe side"
        return "an estimate: good for exploring, not for a promise to people"

    def _about(self) -> tuple[Fact, ...]:
        run, found = self.run, self.run.measured
        return (
            ("Name", self.words["name"]),
            ("Curator", self.words["curator"]),
            ("Intended use", self.words["use"]),
            ("Access", self.words["access"]),
            ("Finished", run.date),
            ("Model", f"{run.recipe.model} with {run.mechanism.encoder.known_dim:,} trained parameters"),
            ("Test accuracy", "not measured: no test part")
            if found is None
            else (f"Test {found.name}", f"{found.text} {self._on()}"),
        )

    def _on(self) -> str:
        """On what the model was measured, and what one answer to all of it would have got."""
        run, tested = self.run, self.run.tested
        if run.measured is None or tested is None:
            return "on test rows, which are not protected; how many is not recorded"
        value = replace(run.measured, value=tested.constant)
        answer = "label" if run.recipe.target_bounds is None else "number"
        return (
            f"on {tested.examples:,} test rows, which are not protected; the same {answer} for all of them, "
            f"whichever is best, gives {value.text}"
        )

    def _test_rows(self) -> str:
        tested = self.run.tested
        if self.run.measured is None:
            return "Test rows, if the model is measured on any: here it was not."
        count = (
            "The test rows, whose number is not recorded" if tested is None else f"The {tested.examples:,} test rows"
        )
        return f"{count}: the model is measured on them without noise, and whoever they are about has no protection."

    def _promise(self) -> tuple[Fact, ...]:
        promise = self.run.promise
        return (
            ("Epsilon", f"{self.epsilon} (rounded up from {promise.epsilon!r})"),
            ("Delta", f"{promise.delta:g}: {probability_in_words(promise.delta)}"),
            ("How sure", self.kind),
            ("Stamps", ", ".join(promise.flags) or "none"),
            ("Privacy unit", PROTECTED[self.run.person]),
            ("Several people" if self.run.person else "Somebody with several rows", self.together),
            ("Neighbouring data", promise.adjacency),
            ("Trust", "central: the curator sees the examples, everybody else sees what is released"),
            ("Release", "one model; the promise covers every noisy gradient of its training as well"),
        )

    def _data(self) -> tuple[Fact, ...]:
        run, bounds = self.run, self.run.recipe.target_bounds
        people = () if run.people == run.data else (("People", run.people),)
        return (
            ("Domain", self.words["domain"]),
            ("Data set", run.data),
            *people,
            *(() if bounds is None else (("Target", f"a number from {bounds[0]:g} to {bounds[1]:g} (public bounds)"),)),
            (
                "People to train on" if run.person else "Training examples",
                "not recorded" if run.examples is None else f"{run.examples:,} (public)",
            ),
            (
                "Rows of a person",
                f"any number, of which a step takes {run.recipe.per_unit} at most"
                if run.person
                else "not stated: nobody has said whose rows are whose",
            ),
        )

    def _training(self) -> tuple[Fact, ...]:
        recipe, mechanism, most = self.run.recipe, self.run.mechanism, self.run.mechanism.sampling.max_batch
        batch = min(recipe.batch, self.run.examples or recipe.batch)  # of fewer examples, all of them
        after = [f"denoiser {recipe.denoiser}"] if recipe.denoiser != "Identity()" else []
        after += [f"moving average of the weights, factor {recipe.averaging:g}"] if recipe.averaging else []
        features = (("Features", f"{recipe.features}, fixed without private data"),) if recipe.features else ()
        return (
            (
                "Sampling",
                f"Poisson: every {'person' if self.run.person else 'example'} enters every step by an own draw",
            ),
            *(() if most is None else (("Largest batch", f"{most:,}; what the cut costs is in delta"),)),
            ("Expected batch", f"{batch:,}, a rate of {mechanism.rate:.6g}"),
            ("Steps", f"{mechanism.steps:,}"),
            ("Encoder", repr(mechanism.encoder)),
            ("Noise", f"{mechanism.noise!r} on the sum of a step"),
            *features,
            ("Learning", f"rate {recipe.lr:g}, momentum {recipe.momentum:g}, schedule {recipe.schedule}"),
            ("Post-processing", "; ".join(after) or "none"),
        )

    def _spending(self) -> tuple[Fact, ...]:
        run, spent = self.run, self.run.spent
        facts: tuple[Fact, ...] = (
            ("This run", f"epsilon {self.epsilon} for {run.mechanism.steps:,} steps")
            if run.search is None
            else ("This run", f"epsilon {self.epsilon} for the whole search that chose it"),
        )
        if run.book.torn_steps is not None:
            facts += (("Lines cut short", f"counted as {run.book.torn_steps} steps, the most that they can have paid"),)
        if spent is None:
            told = "this run has a ledger of its own; what other runs spent on the same people is not in it"
        else:
            value = (
                "no finite epsilon can be shown" if spent.epsilon is None else f"epsilon {rounded_up(spent.epsilon)}"
            )
            marks = f" ({', '.join(spent.flags)})" if spent.flags else ""
            when = "when this run ended" if spent.steps is None else f"for {spent.steps:,} steps{_and(spent.searches)}"
            told = f"{value}{marks} at delta {run.recipe.delta:g} {when}, all runs of the ledger together"
        return (*facts, ("These people", told), ("Tuning", self._tuning()))

    def _tuning(self) -> str:
        """What the ledger says of a search for settings."""
        if (search := self.run.search) is not None:
            by = "a public score" if search.score is None else "a noisy score on examples that no run is trained on"
            return (
                f"chosen by {by} from {search.trials.mean:g} runs on average, whose number was drawn by the "
                f"{search.trials.name} law; the epsilon covers the whole search"
            )
        return "the ledger has no search; choosing settings by results on the same people is not counted"

    def _evidence(self) -> tuple[Fact, ...]:
        run, promise = self.run, self.run.promise
        audited = run.audited
        return (
            ("Accountant", f"{promise.accountant} ({promise.basis})"),
            ("Arithmetic", promise.arithmetic_summary),
            ("Audit", "none kept with this run" if audited is None else f"{audited.verdict}, level {audited.level:g}"),
            ("Mechanism", promise.mechanism_hash),
            ("Versions", ", ".join(f"{name} {text}" for name, text in run.versions.items()) or "not recorded"),
        )

    def to_text(self) -> str:
        """As plain text."""
        lines = [f"Privacy statement: {self.run.name}", ""]
        lines += [*(f"CAUTION: {caution}" for caution in self.cautions), ""] if self.cautions else []
        for section in self.sections:
            lines += [section.title, *(f"  {label}: {value}" for label, value in section.facts), ""]
        lines += [self.heading, *(f"  {sentence}" for sentence in self.meaning), ""]
        lines += ["What is not protected", *(f"  - {what}" for what in self.unprotected)]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "run": str(self.run.folder),
            **self.run.promise.to_dict(),
            "cautions": list(self.cautions),
            "statement": {section.key: dict(section.facts) for section in self.sections},
            "meaning": list(self.meaning),
            "unprotected": list(self.unprotected),
        }


def _and(searches: int | None) -> str:
    return f" and {searches} {'search' if searches == 1 else 'searches'}" if searches else " in all"
