"""Which gradients are handed over together, by what users say of it."""

from __future__ import annotations

from typing import Any, Callable, Hashable, Sequence


def check_groups(groups: int | list | None) -> None:
    """Raises ValueError for what is neither a number above 0 nor a list of lists."""
    if isinstance(groups, list):
        if not all(isinstance(group, (list, tuple)) for group in groups):
            raise ValueError("gradring: groups is a list of what are no lists; it takes a number above 0, or a list of lists of variables")
    elif groups is not None and not groups > 0:
        raise ValueError(f"gradring: groups={groups}; it takes a number above 0, or a list of lists of variables")


def known_by_keys(groups: int | list | None, key_of: Callable[[Any], Hashable]) -> int | list | None:
    """Lists of variables as lists of their keys; anything else as it is."""
    return [[key_of(one) for one in group] for group in groups] if isinstance(groups, list) else groups


def batches_of(groups: int | list | None, keys: Sequence[Hashable]) -> list[list[int]]:
    """Places among `keys`, those of variables that have a gradient, in batches. `groups`: how many batches of about as
    many there are to be, at most; None: one; or lists of keys, where whoever is in none is a batch of its own."""
    if isinstance(groups, list):
        group_of = {key: i for i, group in enumerate(groups) for key in group}
        together: dict[Any, list[int]] = {}
        for place, key in enumerate(keys):
            together.setdefault(group_of.get(key, ("alone", place)), []).append(place)
        return list(together.values())
    count = min(groups or 1, max(len(keys), 1))
    least, more = divmod(len(keys), count)
    starts = [i * least + min(i, more) for i in range(count + 1)]
    return [list(range(starts[i], starts[i + 1])) for i in range(count)]
