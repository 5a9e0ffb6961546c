"""What ranks share: kept to go back to, and handed to those that come in."""

from __future__ import annotations

import copy
import functools
from typing import Any, Callable, Iterable

from ..objects import broadcast_object
from ..world import rank, world
from .interrupts import HostsUpdatedInterrupt


def _from_the_oldest(bcast_object):
    """States of one's own leave the root to its default, as Horovod's do. That would be rank 0, which may have come in just now: all others
    would begin with it at the beginning."""

    @functools.wraps(bcast_object)
    def broadcast(obj, root_rank=None, **keywords):
        return bcast_object(obj, root_rank=world().oldest if root_rank is None else root_rank, **keywords)
    return broadcast


class State:
    """What a training function goes on from. Not thread-safe: it belongs to the thread that trains."""

    _passed = 0  # how often all ranks have met at a commit, or in check_host_updates()

    def __init__(self, bcast_object: Callable[..., Any] | None = None, get_rank: Callable[[], int] | None = None):
        """Horovod asks for both, for the states of one's own that are made of it; ours serve where they are None."""
        self._bcast_object = _from_the_oldest(bcast_object or broadcast_object)
        self._rank = get_rank or rank
        self._reset_callbacks: list[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Functions to be called, in this order, whenever the ranks have changed: what depends on size(), such as the
        learning rate, belongs there."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Keeps the state, and looks who is there. All ranks call it after the same step.

        Raises HostsUpdatedInterrupt, on all of them, if the ranks have changed.
        """
        try:
            self.check_host_updates()
        except HostsUpdatedInterrupt:
            self.save()
            raise
        self.save()  # once all have come to it: who goes back before it is not to find others that have kept more

    def check_host_updates(self) -> None:
        """Takes in ranks that wait for it. All ranks call it after the same step; ops that were started must have been
        waited for. Cheaper than a commit, as nothing is kept. Raises HostsUpdatedInterrupt."""
        one = world()
        grew = one.grew
        changed = one.elastic and one.join_point()
        self._passed += 1
        if changed:
            raise HostsUpdatedInterrupt(skip_sync=one.grew == grew and self._alike())

    def save(self) -> None:
        """Keeps the state in this process's memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to what was kept last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Takes over the state of the rank that has the job's, `world().oldest`. All ranks call it."""
        raise NotImplementedError

    def reset(self) -> None:
        """After the ranks have changed, before the callbacks."""

    def _alike(self) -> bool:
        """Whether ranks that train together have the same state at each commit."""
        return True


class ObjectState(State):
    """Attributes that can be pickled; each keyword becomes one, with its first value."""

    _names: list[str] = []

    def __init__(self, bcast_object: Callable[..., Any] | None = None, get_rank: Callable[[], int] | None = None,
                 **values):
        super().__init__(bcast_object, get_rank)
        self._names = list(values)
        self._kept: dict[str, Any] = {}
        for name, value in values.items():
            setattr(self, name, value)
        self._keep()

    def save(self):
        self._keep()

    def restore(self):
        self._take(self._kept)

    def sync(self):
        if not self._names:
            return
        self._take(self._bcast_object(self._values()))
        self._keep()  # not before: where it fails, all of the state is to be that of one commit

    def _values(self):
        return {name: getattr(self, name) for name in self._names}

    def _keep(self):
        self._kept = {name: copy.deepcopy(value) for name, value in self._values().items()}

    def _take(self, kept):
        for name, value in kept.items():
            setattr(self, name, copy.deepcopy(value))
