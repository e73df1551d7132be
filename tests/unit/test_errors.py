"""Every error is one sentence, a blank line and a hint."""

from __future__ import annotations

import pickle

import pytest

from noisette import errors
from noisette.errors import InvalidInput, NoisetteError, ParseError
from tests.support.helpers import assert_well_formed, refused


@pytest.mark.parametrize("name", errors.__all__)
def test_form(name: str) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, NoisetteError)
    error = kind("rate is 2.", hint="use a rate of at most 1")
    assert_well_formed(error)
    assert str(error) == "rate is 2.\n\nhint: use a rate of at most 1"


def test_kinds() -> None:
    """Callers may catch ValueError for bad input, and one base for everything."""
    assert issubclass(InvalidInput, ValueError)
    assert issubclass(ParseError, InvalidInput)


@pytest.mark.parametrize("text", ["no full stop", "two. sentences.", "a line\nbreak.", ""])
def test_the_form_check_can_fail(text: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        assert_well_formed(NoisetteError(text, hint="h"))
    with pytest.raises(AssertionError):
        assert_well_formed(NoisetteError("fine.", hint=""))
    with pytest.raises(AssertionError), refused(InvalidInput):
        raise InvalidInput(text.replace("\n", " "), hint="")


def test_errors_come_from_other_processes() -> None:
    """Launchers send them by pickle."""
    error = pickle.loads(pickle.dumps(ParseError("rate is 2.", hint="use a rate of at most 1")))
    assert isinstance(error, ParseError)
    assert_well_formed(error)
    assert (error.sentence, error.hint) == ("rate is 2.", "use a rate of at most 1")
