"""State that lies in objects of a framework: models, optimizers, samplers."""

from __future__ import annotations

import copy
from typing import Any, Callable

from ..objects import broadcast_object
from ..world import world
from .state import ObjectState


class Keeper:
    """Of one object: knows how to read its state, as something that can be pickled, and how to write it.

    Attributes:
        alike: whether ranks that train together have the same state of it.
    """

    alike = True

    def __init__(self, part: Any, read: Callable[[Any], Any], write: Callable[[Any, Any], None]):
        self.part = part
        self._read = read
        self._write = write
        self.save()

    def of(self, part: Any) -> Keeper:
        """The same of another object."""
        return type(self)(part, self._read, self._write)

    def save(self) -> None:
        self._kept = copy.deepcopy(self._read(self.part))

    def restore(self) -> None:
        self._write(self.part, copy.deepcopy(self._kept))

    def sync(self) -> None:
        """All ranks call it: they take over the state of the rank that has the job's. It is not kept yet."""
        self._write(self.part, broadcast_object(self._read(self.part), root_rank=world().oldest))

    def reset(self) -> None:
        """After the ranks have changed."""


def assign(variables, values) -> None:
    """Of frameworks whose variables have assign(). Raises ValueError where the values are those of another model."""
    if len(values) != len(variables):
        raise ValueError(f"gradring: a state of {len(values)} variables for a model or an optimizer that has {len(variables)}; "
                         "it must be the same one on all ranks, and stay so")
    for one, value in zip(variables, values, strict=True):
        one.assign(value)


class PartsState(ObjectState):
    """Objects with a keeper each, and attributes that can be pickled. Whoever sets such an object has the other one kept."""

    def __init__(self, keepers: dict[str, Keeper], **values: Any):
        object.__setattr__(self, "_keepers", keepers)
        super().__init__(**values)
        for name, keeper in keepers.items():
            object.__setattr__(self, name, keeper.part)

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name in self._keepers or name in self._names:
            self._keep_as(name, self._keeper_of(name, value))

    def _keep_as(self, name, keeper):
        """An object may take the place of a value, such as None, and a value that of an object."""
        if keeper is None:
            self._keepers.pop(name, None)
            if name not in self._names:
                self._names.append(name)
                self._kept[name] = copy.deepcopy(getattr(self, name))
        else:
            self._keepers[name] = keeper
            if name in self._names:
                self._names.remove(name)
                self._kept.pop(name, None)

    def _keeper_of(self, name, part) -> Keeper | None:
        """Of what is set in place of another; None where it is a value."""
        return self._keepers[name].of(part) if name in self._keepers else None

    def save(self):
        for keeper in self._keepers.values():
            keeper.save()
        super().save()

    def restore(self):
        for keeper in self._keepers.values():
            keeper.restore()
        super().restore()

    def sync(self):
        parts = list(self._keepers)
        theirs, values = self._bcast_object((parts, self._values()))
        if theirs != parts:  # each is handed over by itself: one would be taken for another, or be waited for in vain
            raise ValueError(f"gradring: the state here is made of {_listed(parts)}, and that of rank {world().oldest}, which it is to "
                             f"take over, of {_listed(theirs)}; let all ranks make theirs of the same, in the same order")
        self._take(values)
        for keeper in self._keepers.values():
            keeper.sync()
        self._keep()  # once all are in sync: else restore() would mix what was kept at different times
        for keeper in self._keepers.values():
            keeper.save()

    def reset(self):
        for keeper in self._keepers.values():
            keeper.reset()

    def _alike(self):
        return all(keeper.alike for keeper in self._keepers.values())


def _listed(parts):
    return ", ".join(parts) or "values alone"
