"""What an epsilon means for one person: plain sentences, with numbers that a trade-off curve gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "ALARMS",
    "CAUTIONS",
    "GROUPS",
    "PROTECTED",
    "advantage",
    "attack_power",
    "cautions",
    "percent",
    "probability_in_words",
    "rounded_up",
    "sentences",
    "together",
]

ALARMS = (0.01, 0.1)
"""The shares of false alarms at which the best test is told."""

GROUPS = (2, 5, 10)
"""How many rows of one person, or how many people, are told what a promise for one leaves to all of them."""

PROTECTED = {
    False: "one row; nobody has said whose rows are whose, and somebody with several is protected less",
    True: "one person with all their rows; several people together are protected less",
}
"""What a guarantee protects, by whether it was said whose rows are whose."""

CAUTIONS = {
    "estimate": "The epsilon is an estimate and not a bound: the noise was checked by numbers, not by a proof.",
    "inexact": "The epsilon is for real numbers: on this machine an example may change how others are rounded.",
    "reproducible": "Not for release: the noise came from a seed, and whoever has the seed can take the noise away.",
    "unsafe": "Private metrics of this training were shown, and no number here covers what they gave away.",
}
"""What each stamp of a guarantee means for somebody who relies on it."""


def cautions(flags: Iterable[str]) -> tuple[str, ...]:
    """A sentence for each of `flags`."""
    return tuple(CAUTIONS[name] for name in flags)


def attack_power(epsilon: float, delta: float, alarms: float) -> float:
    """The largest share of members that a test can find which is wrong about the share `alarms` of all others.

    It follows from epsilon and delta alone, so it holds for every mechanism that keeps them.

    >>> round(attack_power(1.0, 1e-5, 0.01), 4)
    0.0272
    """
    raised = math.exp(min(epsilon, 700.0))
    return min(1.0, raised * alarms + delta, 1 - (1 - delta - alarms) / raised)


def advantage(epsilon: float, delta: float) -> float:
    """The largest share found minus share of false alarms that epsilon and delta leave to any test.

    >>> advantage(0.0, 0.0), round(advantage(1.0, 1e-5), 4)
    (0.0, 0.4621)
    """
    return math.tanh(epsilon / 2) + delta * (1 - math.tanh(epsilon / 2))


def sentences(
    epsilon: float, delta: float, test: Callable[[float], float], edge: float, *, person: bool = False
) -> tuple[str, str, str, str]:
    """Four sentences to somebody whose example may be in the data, or all of whose examples, for a whole `person`.

    ``test(alarms)`` is the largest share that any test can find at a share of false alarms, `edge` its largest
    advantage. All numbers are rounded to the safe side.
    """
    yours, others = ("all your examples", "people") if person else ("your example", "examples")
    were, less = ("were", "several people together") if person else ("was", "somebody with several examples")
    few, many = (percent(test(alarms)) for alarms in ALARMS)
    return (
        f"Nothing that comes out of the training is more than {_times(epsilon)} times as likely with {yours} in the "
        f"data as without, or the other way round, but for {probability_in_words(delta)} that this promise leaves "
        f"open.",
        f"Somebody who knows all the rest and looks for {yours} in what came out is right with a chance of at most "
        f"{few} if they may be wrong about 1% of the {others} that were not there, and of at most {many} if about 10%; "
        "blind guesses find 1% and 10%.",
        f"If a fair coin had decided whether to use {yours}, nobody could tell how the coin fell with a chance of more "
        f"than {percent((1 + edge) / 2)}; blind guesses are right with 50%.",
        f"This hides whether {yours} {were} there; it does not hide what the model has learnt about people in general, "
        f"and it protects {less} less.",
    )


def together(epsilons: Mapping[int, float], delta: float, *, person: bool = False) -> str:
    """What is left to several rows of one person, or to several people: `epsilons` by their number, at one `delta`.

    >>> together({2: 6.1, 5: math.inf}, 1e-5)
    'epsilon 6.100 for 2 rows, none that can be told for 5 rows, at the same delta of 1e-05'
    """
    of = "people" if person else "rows"
    told = (
        f"{f'epsilon {rounded_up(value)}' if value < math.inf else 'none that can be told'} for {size} {of}"
        for size, value in epsilons.items()
    )
    return f"{', '.join(told)}, at the same delta of {delta:g}"


def percent(share: float) -> str:
    """A share that is an upper bound, in percent with one decimal, rounded up.

    >>> percent(0.18205), percent(1.0)
    ('18.3%', '100%')
    """
    tenths = min(1000, math.ceil(share * 1000 - 1e-9))
    return "100%" if tenths == 1000 else f"{tenths / 10:.1f}%"


def rounded_up(value: float, digits: int = 4) -> str:
    """An upper bound with so many digits that count, rounded up.

    >>> rounded_up(2.99912), rounded_up(0.5), rounded_up(0.0), rounded_up(math.inf)
    ('3.000', '0.5000', '0', 'inf')
    """
    if value <= 0 or not math.isfinite(value):
        return "0" if value <= 0 else f"{value}"
    places = digits - 1 - math.floor(math.log10(value))
    # the last bits of a product are no reason to go up by one
    up = math.ceil(value * 10.0**places * (1 - 1e-12)) / 10.0**places
    return f"{up:,.{max(places, 0)}f}" if 1e-4 <= up < 1e6 else f"{up:.{digits - 1}e}"


def probability_in_words(delta: float) -> str:
    """A small probability in words.

    >>> probability_in_words(1e-5), probability_in_words(3e-7)
    ('a chance of 1 in 100,000', 'a chance of 1 in 3,333,333')
    """
    if delta < 1e-12:
        return f"a chance of {delta:g}"
    return f"a chance of 1 in {math.floor(1 / delta * (1 + 1e-12)):,}"


def _times(epsilon: float) -> str:
    return rounded_up(math.exp(epsilon), 3) if epsilon < 700 else f"e^{epsilon:.0f}"
