"""Values that can be written down: every noise, encoder, profile family and mechanism is a `Spec`.

A spec is a frozen dataclass whose ``repr`` parses back to an equal value. Subclassing is all that it takes to be
known by name; parsing walks the syntax tree and never evaluates code.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import math
import numbers
import operator
import sys
import unicodedata
from abc import ABC
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, ClassVar, Protocol, Self, TypeVar

from noisette.errors import InvalidInput, ParseError

S = TypeVar("S", bound="Spec")
T = TypeVar("T")

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class Spec(ABC):  # noqa: B024 - its leaves have the abstract methods
    """Root of everything that has a text form.

    Leaves are frozen dataclasses. ``replace`` makes a changed copy, validated anew.

    >>> from noisette.noise import Gaussian
    >>> Gaussian(scale=1.0).replace(scale=2.0)
    Gaussian(scale=2.0)
    """

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[type-var]

    def _parts(self) -> dict[str, tuple[Any, Any]]:
        """What a text form tells, by name: each value beside its default."""
        return {field.name: (getattr(self, field.name), field.default) for field in fields(self)}  # type: ignore[arg-type]

    def _set(self, **values: Any) -> None:
        """Store canonical values while a frozen dataclass is being built."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


def canonical(value: Any) -> str:
    """A text that stays the same when a spec gains a field with a default: fields at their defaults are left out.

    Fields are sorted by name. It names values, and is not parsed: the text form of a spec is its ``repr``, which says
    everything, so that it means the same when a default changes.

    >>> from noisette.encoders import Ranked
    >>> canonical(Ranked(dim=5)), canonical(Ranked(dim=5, radius=2))
    ('Ranked(dim=5)', 'Ranked(dim=5, radius=2.0)')
    """
    if isinstance(value, tuple):
        return f"({', '.join(map(canonical, value))})"
    if not isinstance(value, Spec):
        return repr(value)
    told = [f"{name}={canonical(now)}" for name, (now, default) in sorted(value._parts().items()) if now != default]
    return f"{type(value).__name__}({', '.join(told)})"


def registered(base: type[T]) -> dict[str, type[T]]:
    """Every concrete class below `base`, by name.

    >>> from noisette.noise import Noise
    >>> "StudentT" in registered(Noise)
    True
    """
    found: dict[str, type[T]] = {}
    pending = [base]
    while pending:
        cls = pending.pop()
        pending.extend(cls.__subclasses__())
        if cls is not Spec and not inspect.isabstract(cls):
            other = found.setdefault(cls.__name__, cls)
            if other.__module__ != cls.__module__:
                raise InvalidInput(
                    f"{cls.__name__} names two classes, in {other.__module__} and in {cls.__module__}.",
                    hint="give one of them another name",
                )
            found[cls.__name__] = cls
    return dict(sorted(found.items()))


class Named(Protocol):
    """What has a name that the command line takes."""

    name: ClassVar[str]


N = TypeVar("N", bound=Named)


def named(base: type[N]) -> dict[str, N]:
    """One of every concrete class below `base`, by its `name`.

    >>> from noisette.accounting import Accountant
    >>> list(named(Accountant))
    ['pld', 'rdp', 'rdp-classic']
    """
    found: dict[str, N] = {}
    for cls in registered(base).values():
        if not isinstance(getattr(cls, "name", None), str):
            raise InvalidInput(f"{cls.__name__} has no name.", hint=f'write name = "..." in the class {cls.__name__}')
        if cls.name in found:
            raise InvalidInput(
                f"{cls.name!r} names two classes, {type(found[cls.name]).__name__} and {cls.__name__}.",
                hint="give one of them another name",
            )
        found[cls.name] = cls()
    return dict(sorted(found.items()))


def parse(text: str, base: type[S]) -> S:
    """The value that `text` describes, which must be a `base`.

    >>> from noisette.noise import Noise
    >>> parse("StudentT(df=9, scale=1/2)", Noise)
    StudentT(df=9.0, scale=0.5)
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ParseError(f"{_short(text)} is not a valid expression.", hint=f"write it like {_example(base)}") from None
    try:
        value = _value(tree.body, text)
    except RecursionError:
        raise ParseError(f"{_short(text)} is nested too deeply.", hint=f"write it like {_example(base)}") from None
    if not isinstance(value, base):
        raise ParseError(
            f"{_short(text)} is not a {base.__name__}.",
            hint=f"write one of {', '.join(registered(base))}, for example {_example(base)}",
        )
    return value


def parse_number(text: str) -> float:
    """A number or a fraction of two numbers.

    >>> parse_number("256/60000")
    0.004266666666666667
    """
    try:
        numerator, slash, denominator = text.partition("/")
        return float(numerator) / float(denominator) if slash else float(numerator)
    except (ValueError, ZeroDivisionError):
        raise ParseError(f"{_short(text)} is not a number.", hint="write 0.01 or a fraction like 256/60000") from None


def _value(node: ast.expr, text: str) -> Any:
    match node:
        case ast.Constant(value=bool() | float() | str() | None):
            return node.value
        case ast.Constant(value=int()):
            return _bounded(node.value, text)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(_value(item, text) for item in items)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand, text)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            try:
                return _bounded(_OPERATORS[type(op)](_number(left, text), _number(right, text)), text)
            except (ZeroDivisionError, OverflowError):
                raise ParseError(
                    f"{_short(text)} holds arithmetic with no finite result.", hint="check its numbers"
                ) from None
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            return _call(name, args, keywords, text)
    raise ParseError(
        f"{_short(text)} holds something that is neither a number, a text, a tuple nor a known name.",
        hint="write a name with its arguments, like StudentT(df=9, scale=1.0)",
    )


def _bounded(value: Any, text: str) -> Any:
    """A number that a float can hold as well: integers could go on to any length."""
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise ParseError(f"{_short(text)} holds an integer larger than any float.", hint="check its numbers")
    return value


def _number(node: ast.expr, text: str) -> Any:
    value = _value(node, text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParseError(f"{_short(text)} does arithmetic on something that is not a number.", hint="use plain numbers")
    return value


def _call(name: str, args: list[ast.expr], keywords: list[ast.keyword], text: str) -> Any:
    known = registered(Spec)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or list(known)
        raise ParseError(f"{name!r} is not known here.", hint=f"did you mean {', '.join(near)}?")
    positional = [_value(arg, text) for arg in args]
    named = {keyword.arg or "**": _value(keyword.value, text) for keyword in keywords}
    if len(named) < len(keywords):
        raise ParseError(f"{_short(text)} gives {name} an argument twice.", hint="leave one of them out")
    signature = inspect.signature(known[name])
    try:
        signature.bind(*positional, **named)
    except TypeError as error:
        raise ParseError(f"{_short(text)}: {name} {error}.", hint=f"its form is {name}{_form(signature)}") from None
    return known[name](*positional, **named)


def _form(signature: inspect.Signature) -> str:
    return "(" + ", ".join(str(p).split(":")[0].strip() for p in signature.parameters.values()) + ")"


def _example(base: type[Spec]) -> str:
    for cls in registered(base).values():
        examples = getattr(cls, "examples", None)
        if examples is not None:
            return repr(examples()[0])
    return f"{base.__name__}(...)"


def _is_number(value: Any) -> bool:
    """Whether `value` is a real number, numpy's included, which are none of Python's own types."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def real(name: str, value: Any) -> float:
    """`value` as a finite float of Python's own, or an error that names it."""
    hint = f"give {name} as a plain number"
    try:
        if _is_number(value) and math.isfinite(value):
            return float(value)
    except OverflowError:
        raise InvalidInput(f"{name} is larger than any float.", hint=hint) from None
    raise InvalidInput(f"{name} is {_short(value)}, not a finite number.", hint=hint)


def positive(name: str, value: Any, *, hint: str = "") -> float:
    """`value` as a finite float above zero, or an error that names it."""
    number = real(name, value)
    if number <= 0:
        raise InvalidInput(f"{name} is {_short(value)}, not above 0.", hint=hint or f"give a positive {name}")
    return number


def entries(name: str, value: Any) -> tuple[Any, ...]:
    """`value` as a tuple, or an error that names it."""
    if not isinstance(value, tuple | list):
        raise InvalidInput(f"{name} is {_short(value)}, not a tuple.", hint=f"write {name}=({_short(value)},)")
    return tuple(value)


def whole(name: str, value: Any, *, least: int, most: int | None = None) -> int:
    """`value` as an integer of Python's own from `least` to `most`, or an error that names it."""
    try:
        found: int | None = int(value) if _is_number(value) else None
    except (ValueError, OverflowError):  # NaN, infinity
        found = None
    if found is None or found != value or found < least:
        raise InvalidInput(
            f"{name} is {_short(value)}, not a whole number of at least {least}.",
            hint=f"give {name} as an integer >= {least}",
        )
    if most is not None and found > most:
        raise InvalidInput(f"{name} is above {most}.", hint=f"give {name} as an integer <= {most}")
    return found


def line(name: str, value: Any) -> str:
    """`value` as one line of text, which can name a file, or an error that names it.

    >>> line("data", "csv:table.csv:label")
    'csv:table.csv:label'
    """
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is {_short(value)}, not a text.", hint=f'write {name} = "..."')
    # control characters, and what stands for bytes that are no UTF-8: neither a file of ours nor a terminal takes them
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in value):
        raise InvalidInput(
            f"{name} holds characters that cannot be written.", hint=f"write {name} in UTF-8 on one line"
        )
    return value


def what(value: object) -> str:
    """What a value from outside is, in a sentence: by its type, as its text may be long, or private.

    >>> what(None), what("x"), what(ValueError)
    ('None', 'of type str', 'the class ValueError')
    """
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


def _short(value: Any) -> str:
    """The text of a value from outside, in an error: integers of thousands of digits have none."""
    try:
        found = repr(value)
    except ValueError:
        return "a huge number"
    return found if len(found) <= 200 else f"{found[:200]}…"
