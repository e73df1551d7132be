"""What a model holds is found as a whole, however it is held."""

from __future__ import annotations

from noisette._gradients.state_snapshot import StateSnapshot


def test_sets_beside_each_other_are_all_seen() -> None:
    """Each is looked at by a list that is gone after it, whose place in memory the next one may get."""
    found = StateSnapshot(thorough=False)
    found.add([{number} for number in range(100)], "net")
    assert [found.leaves.get(f"net[{number}][0]") for number in range(100)] == [str(number) for number in range(100)]


def test_what_two_names_hold_is_seen_once() -> None:
    shared = [1]
    found = StateSnapshot(thorough=False)
    found.add({"one": shared, "other": shared}, "net")
    assert found.leaves == {"len(net['one'])": 1, "net['one'][0]": 1}
