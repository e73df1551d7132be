"""Text forms: parsed by the syntax tree, never evaluated; every bad text is a ParseError with a hint."""

from __future__ import annotations

import gc
import math
import sys
from dataclasses import dataclass, fields
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from noisette import Encoder, Noise, parse
from noisette._spec import Spec, canonical, parse_number, positive, real, registered, whole
from noisette.encoders import Ranked
from noisette.encoders.profiles import Blocks, Profiles, Quantiles, Tails
from noisette.errors import InvalidInput, NoisetteError, ParseError
from noisette.noise import Gaussian, GeneralizedGaussian, Laplace, ScipyNoise, StudentT, VarianceGamma
from tests.support.helpers import refused

ATTACKS = [
    "__import__('os').system('x')",
    "__import__('os')",
    "eval('1')",
    "exec('x = 1')",
    "open('x')",
    "print(1)",
    "type(1)",
    "(lambda: Gaussian(scale=1))()",
    "lambda: 1",
    "Gaussian(scale=1).std",
    "Gaussian(scale=1).__class__",
    "Gaussian.examples()",
    "Quantiles(law=Laplace(scale=1)).law",
    "().__class__.__bases__[0].__subclasses__()",
    "[Gaussian(scale=x) for x in (1,)]",
    "Gaussian(scale=(x := 1))",
    "Gaussian(scale=1) if 1 else 2",
    "Gaussian(scale=1) or 1",
    "Gaussian(scale=f'{1}')",
    "Gaussian(scale=[1][0])",
    "Gaussian(**{'scale': 1})",
    "Gaussian(*(1,))",
    "Gaussian(**1)",
    "Gaussian(scale=1, **{})",
    "{'a': 1}",
    "{1, 2}",
    "Gaussian",
    "Spec()",
    "Noise()",
    "Profiles()",
    "SortedProfile()",
    "_FromQuantiles()",
    "scale",
    "...",
    "b'x'",
    "1j",
    "await x",
    "yield",
    "import os",
    "x = 1",
    "Gaussian(scale=1); Gaussian(scale=2)",
]
BROKEN = [
    "",
    "   ",
    "\0",
    "Gaussian(",
    "Gaussian(scale=1))",
    "Gaussian(scale=)",
    "Gaussian(scal=1)",
    "Gaussian(1, 2, 3)",
    "Gaussian(1, scale=1)",
    "Gaussian(scale=1, scale=2)",
    "Gausian(scale=1)",
    "StudentT()",
    "Gaussian(scale=nan)",
    "Gaussian(scale=inf)",
    "Gaussian(scale=1e999)",
    "Gaussian(scale=-1)",
    "Gaussian(scale=0)",
    "Gaussian(scale='1')",
    "Gaussian(scale=True)",
    "Gaussian(scale=(1,))",
    "Gaussian(scale=Gaussian(scale=1))",
    "Gaussian(scale=1/0)",
    "Gaussian(scale=1e308*10)",
    "Gaussian(scale='a'*10)",
    "Gaussian(scale=-'a')",
    "Gaussian(scale=True+1)",
    "Gaussian(scale=2**3)",
    "Gaussian(scale=7//2)",
    "Gaussian(scale=~1)",
    "Gaussian(scale=+1)",
    "1",
    "'Gaussian(scale=1)'",
    "(Gaussian(scale=1),)",
    "None",
    "HalfNormal()",
    "ScipyNoise(5)",
    "ScipyNoise()",
    "StudentT(df=0, scale=1)",
    "VarianceGamma(shape=0.5, scale=1)",
]
HUGE = [
    f"Gaussian(scale={'9' * 400})",
    f"Gaussian(scale={'9' * 5000})",
    f"Gaussian(scale={'9' * 4000}*{'9' * 4000})",
    "Gaussian(scale=" + "(" * 5000 + "1" + ")" * 5000 + ")",
    "Gaussian(scale=" + "-" * 20_000 + "1)",
    "Gaussian(scale=" + "+".join(["1"] * 900) + ")",
    "Gaussian(scale=" + "+".join(["1"] * 20_000) + ")",
    "Gaussian(" * 90 + ")" * 90,
    "Gaussian(scale=" + "(" * 150 + "," + ")" * 150 + ")",
    "Gaussian(" + "x" * 100_000 + "=1)",
]


@pytest.mark.parametrize("text", [*ATTACKS, *BROKEN])
def test_refused(text: str) -> None:
    with refused(InvalidInput):
        parse(text, Noise)


@pytest.mark.parametrize("text", HUGE, ids=range(len(HUGE)))
def test_huge_texts_are_refused(text: str) -> None:
    """Deep nesting and huge numbers end in an error with a hint, not in a RecursionError or an OverflowError."""
    with refused(InvalidInput):
        parse(text, Noise)


def test_nothing_is_evaluated(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attack that would leave a trace leaves none."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    for text in ("open('trace', 'w')", "__import__('antigravity')", "Gaussian(scale=open('trace', 'w'))"):
        with refused(ParseError):
            parse(text, Noise)
    assert list(tmp_path.iterdir()) == []
    assert set(sys.modules) == before


@settings(max_examples=40)
@given(st.text(max_size=60))
@example("\udcff")
@example("Gaussian(scale=0x10)")
def test_any_text_is_a_value_or_an_error(text: str) -> None:
    try:
        value = parse(text, Noise)
    except NoisetteError as refusal:
        value = refusal
    assert isinstance(value, Noise) or value.hint


def test_arithmetic() -> None:
    assert parse("Gaussian(scale=1/2)", Noise) == Gaussian(0.5)
    assert parse(" StudentT(9, 2*3-1) ", Noise) == StudentT(9, 5.0)
    assert parse("Gaussian(scale=--1)", Noise) == Gaussian(1.0)


def test_nested_and_lists() -> None:
    text = "Ranked(dim=50, profiles=Blocks(dims=[20, 30], profiles=Quantiles(law=StudentT(df=3))))"
    expected = Ranked(dim=50, profiles=Blocks(dims=(20, 30), profiles=Quantiles(law=StudentT(df=3))))
    assert parse(text, Encoder) == expected
    assert parse(repr(expected), Encoder) == expected


def test_hints_help() -> None:
    with pytest.raises(ParseError, match="Gaussian"):
        parse("Gausian(scale=1)", Noise)
    with pytest.raises(ParseError, match="its form is Gaussian"):
        parse("Gaussian(sigma=1)", Noise)
    with pytest.raises(ParseError, match="is not a Profiles"):
        parse("Gaussian(scale=1)", Profiles)


def test_a_new_field_with_a_default_changes_no_name() -> None:
    """Ledgers and checkpoints name mechanisms: a later version of a spec must find its own."""

    @dataclass(frozen=True)
    class Old(Spec):
        df: float
        scale: float | None = None

    before = canonical(Old(9.0, 1.0))
    assert before == "Old(df=9.0, scale=1.0)"

    @dataclass(frozen=True)
    class New(Spec):
        scale: float | None = None
        df: float = 3.0
        truncated: float | None = None
        parts: tuple[float, ...] = ()

    New.__name__ = "Old"
    assert canonical(New(1.0, 9.0)) == before
    assert canonical(New(1.0, 9.0, truncated=2.0)) != before
    assert canonical(New(1.0, 3.0)) == "Old(scale=1.0)"
    del Old, New
    gc.collect()  # so that no other test meets two classes of one name


def test_canonical_forms_tell_values_apart() -> None:
    specs = [
        example
        for base in (Noise, Encoder, Profiles)
        for kind in registered(base).values()
        for example in kind.examples()
    ]
    assert len({canonical(spec) for spec in specs}) == len(set(specs))


positives = st.floats(1e-100, 1e100)


@given(
    st.one_of(
        st.builds(Gaussian, positives | st.none()),
        st.builds(Laplace, positives),
        st.builds(StudentT, st.floats(0.2, 1e6), positives | st.none()),
        st.builds(GeneralizedGaussian, st.floats(0.2, 50), positives),
        st.builds(VarianceGamma, st.floats(0.501, 50), positives),
        st.builds(lambda df, scale: ScipyNoise("t", df, scale=scale), st.floats(0.5, 100), positives),
    )
)
def test_round_trip_of_noise(noise: Noise) -> None:
    assert parse(repr(noise), Noise) == noise


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=5), st.lists(positives, min_size=1, max_size=4), positives)
def test_round_trip_of_encoders(dims: list[int], shapes: list[float], radius: float) -> None:
    encoder = Ranked(dim=sum(dims), profiles=Blocks(dims=tuple(dims), profiles=Tails(tuple(shapes))), radius=radius)
    assert parse(repr(encoder), Encoder) == encoder
    assert hash(parse(repr(encoder), Encoder)) == hash(encoder)


def test_parse_number() -> None:
    assert parse_number("256/60000") == 256 / 60000
    assert parse_number(" 0.5 ") == 0.5
    for bad in ("", "a", "1/0", "1/2/3", "1/", "/2", "1;2"):
        with refused(ParseError, "not a number"):
            parse_number(bad)


def test_registered_finds_leaves_only() -> None:
    found = registered(Spec)
    assert "Mechanism" in found
    assert not {"Spec", "Noise", "Encoder", "Profiles", "SortedProfile", "_FromQuantiles"} & set(found)
    assert list(found) == sorted(found)


def test_a_subclass_is_known_at_once_and_forgotten_when_gone() -> None:
    @dataclass(frozen=True)
    class Wider(Gaussian):
        """A Gaussian under another name."""

    assert parse("Wider(scale=2)", Noise) == Wider(2.0)
    del Wider
    gc.collect()
    assert "Wider" not in registered(Noise)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, "1", None, True, 1j, [1], 10**400])
def test_numbers(bad: object) -> None:
    with refused(InvalidInput, "size"):
        real("size", bad)
    with refused(InvalidInput, "size"):
        positive("size", bad)


def test_numbers_that_are_fine() -> None:
    assert real("size", Fraction(1, 4)) == 0.25
    assert real("size", -3) == -3.0
    assert positive("size", 5e-324) == 5e-324
    assert whole("size", 3.0, least=3) == 3
    assert isinstance(whole("size", 3.0, least=3), int)
    for bad in (0, -1, -5e-324):
        with refused(InvalidInput, "above 0"):
            positive("size", bad)
    for bad in (2, 2.5, math.nan, math.inf, "3", None, True):
        with refused(InvalidInput, "whole number"):
            whole("size", bad, least=3)


@pytest.mark.parametrize(
    "number", [np.int64(4), np.uint8(4), np.float32(4.0), np.float64(4.0), np.float16(4.0)], ids=repr
)
def test_numbers_of_numpy_become_python_s_own(number: object) -> None:
    for found, kind in ((real("size", number), float), (whole("size", number, least=3), int)):
        assert found == 4
        assert type(found) is kind


@pytest.mark.parametrize(
    "bad", [np.float32("nan"), np.float64("inf"), np.bool_(True), np.array(4), np.complex64(4)], ids=repr
)
def test_what_numpy_has_beside_numbers_is_refused(bad: object) -> None:
    with refused(InvalidInput, "size"):
        real("size", bad)
    with refused(InvalidInput, "size"):
        whole("size", bad, least=1)


@pytest.mark.parametrize("name", [name for name, cls in registered(Spec).items() if hasattr(cls, "examples")])
def test_whatever_is_made_with_numbers_of_numpy_has_the_same_text(name: str) -> None:
    for one in registered(Spec)[name].examples():  # type: ignore[attr-defined]
        again = one.replace(**{field.name: _of_numpy(getattr(one, field.name)) for field in fields(one)})
        assert (repr(again), canonical(again), hash(again)) == (repr(one), canonical(one), hash(one))


def _of_numpy(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(_of_numpy, value))
    if isinstance(value, float):
        return np.float32(value) if float(np.float32(value)) == value else np.float64(value)
    return np.int64(value) if isinstance(value, int) and not isinstance(value, bool) else value


def test_two_classes_of_one_name_are_refused() -> None:
    """A text must never mean another class than the one its writer had in mind."""

    class Gaussian(Spec):
        """Takes the name of a noise."""

    with pytest.raises(InvalidInput, match="names two classes"):
        parse("Gaussian(scale=1)", Spec)
    del Gaussian
    gc.collect()
