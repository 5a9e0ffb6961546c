"""Groups of ranks that exchange among themselves."""

from __future__ import annotations

import operator
from typing import Iterable

from . import _native
from .handles import Names
from .world import World, followed_by, is_initialized, rank, size, world


class ProcessSet:
    """Some ranks of the job. Ops in different sets go side by side.

    Made by its ranks, it does nothing until init(process_sets=...) or add_process_set() has it; then it has a
    `process_set_id`. All ranks of the job must name the same sets in the same order. When ranks of an elastic job are
    lost, or come in, `ranks` are the places that its members have then; it is over where one of them is lost.
    """

    def __init__(self, ranks: Iterable[int]):
        try:
            self.ranks = sorted(set(map(operator.index, ranks)))
        except TypeError:
            raise TypeError(f"gradring: a process set of {ranks!r}: it takes a list of ranks, which are whole numbers, as in "
                            "add_process_set([0, 1])") from None
        self.process_set_id: int | None = None
        self._job: _native.Job | None = None
        self._names = Names()
        self._members: list[int] = []  # by the daemons' numbers
        self._over: str | None = None  # why

    def included(self) -> bool:
        """Whether this process is in it."""
        self._id()
        return self._job is not None

    def rank(self) -> int | None:
        """This process's number in it; None where it is not in it."""
        self._id()
        return self.ranks.index(rank()) if rank() in self.ranks else None

    def size(self) -> int:
        self._id()
        return len(self.ranks)

    def job(self) -> _native.Job:
        """For ops. Raises ValueError where this process is not in it."""
        self._id()
        if self._job is None:
            raise ValueError(f"gradring: this rank is not in the process set of ranks {self.ranks}")
        return self._job

    def names(self) -> Names:
        return self._names

    def place_of(self, rank: int) -> int:
        """The number in the set's job of a rank of the whole job. Raises ValueError."""
        self._id()
        if rank not in self.ranks:
            raise ValueError(f"gradring: rank {rank} is not in the process set of ranks {self.ranks}")
        return self.ranks.index(rank)

    def _id(self) -> int:
        if self._over is not None:
            raise ValueError(self._over)
        if self.process_set_id is None:
            raise ValueError(f"gradring: the process set of ranks {self.ranks} has not been added to the job: "
                             "add_process_set(), or init(process_sets=[...])")
        return self.process_set_id

    def __repr__(self):
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


class _GlobalProcessSet(ProcessSet):
    """All ranks of the job, as there are at the moment."""

    def __init__(self):
        super().__init__([])
        self.process_set_id = 0

    @property
    def ranks(self):
        return list(range(size())) if is_initialized() else []

    @ranks.setter
    def ranks(self, _):
        pass

    def included(self):
        return True

    def job(self):
        return world().job

    def names(self):
        return world().names

    def place_of(self, rank):
        numbers = world().standing.numbers
        if not hasattr(rank, "__index__") or not 0 <= rank < len(numbers):
            raise ValueError(f"gradring: there is no rank {rank} among {len(numbers)}")
        return numbers[rank]


global_process_set = _GlobalProcessSet()


def checked(process_set: ProcessSet) -> ProcessSet:
    """Raises TypeError for what is none, as its number or its ranks."""
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"gradring: process_set is {process_set!r}, which is no ProcessSet: give what add_process_set() returned, "
                        "or leave it away for all ranks")
    return process_set


_sets: dict[int, ProcessSet] = {}
_next_id = 1


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Makes it known to the job. All ranks of the job call it, with the same ranks; returns when all of its members
    have, and in an elastic job all others too have come to it. Raises ValueError for ranks that there are not, or ranks that
    another set has already."""
    global _next_id
    one = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if one is global_process_set:
        raise ValueError("gradring: the global process set is there already")
    if one.process_set_id is not None:
        raise ValueError(f"gradring: {one} has been added already")
    if any(not 0 <= number < size() for number in one.ranks) or not one.ranks:
        raise ValueError(f"gradring: a process set of ranks {one.ranks} in a job of {size()} ranks")
    same = [other for other in _known() if other.ranks == one.ranks]
    if same:
        raise ValueError(f"gradring: {same[0]} has these ranks already")
    if world().elastic:
        # A rank that goes back, as it could not make the set before, does not come; the others would wait for it in theirs.
        world().job.start(_native.Call(_native.Collective.BARRIER), []).wait()
    numbers = world().standing.numbers
    one._members = [numbers[number] for number in one.ranks]
    one._job = world().job.group(one._members) if rank() in one.ranks else None
    one._names = Names()
    one._over = None
    one.process_set_id, _next_id = _next_id, _next_id + 1
    _sets[one.process_set_id] = one
    return one


def remove_process_set(process_set: ProcessSet) -> bool:
    """Lets go of it; all ranks of the job call it. False if there is no such set, or it is the global one."""
    if checked(process_set) is global_process_set or process_set.process_set_id not in _sets:
        return False
    del _sets[process_set.process_set_id]
    _forget(process_set)
    return True


def abandon() -> None:
    """Ends the ops of the job and of its sets that others wait in for this rank, which goes back. All ranks call it then."""
    world().job.abandon([one._job for one in _sets.values() if one._job is not None])
    for one in _known():
        one.names().start_anew()


def _follow(changed: World) -> None:
    """Of a rank that is lost the group is over for good, also where another process has its number now."""
    numbers = changed.standing.numbers
    for one in list(_sets.values()):
        gone = [place for place, number in zip(one.ranks, one._members, strict=True)
                if number not in numbers or number in changed.newcomers]
        if not gone:
            one.ranks = [numbers.index(number) for number in one._members]
            continue
        one._over = (f"gradring: rank {gone[0]} of the process set of ranks {one.ranks} was lost; make another set, in a "
                     "reset callback of the state")
        remove_process_set(one)


followed_by(_follow)


def process_set_ids() -> list[int]:
    """Of all sets that there are, the global one's 0 first."""
    return [0, *_sets]


def process_set_of(process_set_id: int) -> ProcessSet:
    """Raises ValueError where there is none of this number."""
    for one in _known():
        if one.process_set_id == process_set_id:
            return one
    raise ValueError(f"gradring: there is no process set {process_set_id}")


def _known():
    return [global_process_set, *_sets.values()]


def _forget(one):
    one._job = None
    one.process_set_id = None


def start(process_sets: list[ProcessSet], comms: list) -> None:
    """Once there is a world: the sets that init() was given, and its further communicators."""
    if world().came_late and (process_sets or comms):
        raise ValueError("gradring: init() with process sets in an elastic job that runs already, whose ranks have made theirs: "
                         "let all ranks make them by add_process_set(), after init() and in a reset callback of the state")
    for one in process_sets:
        add_process_set(one)
    for comm in comms:
        add_process_set(list(comm) if not hasattr(comm, "Get_rank") else _ranks_of(comm))


def _ranks_of(comm):
    return comm.allgather(rank())


def stop() -> None:
    global _next_id
    known = list(_sets.values())
    left = [one._job for one in known if one._job is not None]
    _sets.clear()
    _next_id = 1
    for one in known:
        _forget(one)
    for job in left:
        job.leave()  # handles may keep it open
