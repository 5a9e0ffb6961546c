"""This process's place among the ranks of its job."""

from __future__ import annotations

import hashlib
import struct
import time
from dataclasses import dataclass
from typing import Callable

from . import _native
from ._native import Call, Cause, Code, Collective, Dtype
from .errors import GradringError
from .handles import Names

_CARD = struct.Struct("<16sqq?")  # of a rank: its node's digest, its local rank, its number, whether it has just come in
PATIENCE = 30.0  # seconds for ops that other threads had started
MEET_AGAIN = (Cause.MISMATCH, Cause.ROOT_LOST)  # what ends a meeting, and not the next one


@dataclass(frozen=True)
class Standing:
    """Where this rank is among those that are there. Of an elastic job: since the last join point."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int  # this node's place among the nodes that have a rank of this local rank
    cross_size: int
    is_homogeneous: bool
    numbers: tuple[int, ...]  # by which the daemons know the ranks, ascending


def is_elastic(policy: str) -> bool:
    """As the daemon reads it: blanks do not count."""
    return policy.split()[:1] == ["elastic"]


class World:
    """A job that this process is in."""

    def __init__(self, job: _native.Job, elastic: bool, runtime_dir: str | None = None):
        """`runtime_dir`: of the daemon, where init() was told one."""
        self.job = job
        self.elastic = elastic
        self.runtime_dir = runtime_dir
        self.names = Names()
        self.grew = 0
        self.oldest = 0  # the rank that has the job's state
        self.standing: Standing | None = None
        self.newcomers: frozenset[int] = frozenset()  # numbers of those that came in when the ranks last changed
        if elastic:
            self._come_in()
        else:
            self.standing = self._find_out(tuple(range(job.size)))
        self.came_late = len(self.newcomers) < self.standing.size  # into a job that ran already

    def _come_in(self) -> None:
        try:
            self.join_point()
        except GradringError as error:
            if error.cause not in MEET_AGAIN:
                raise
            self.meet_after(error, lambda: self.job.abandon([]))

    def meet_after(self, error: GradringError, abandon: Callable[[], None]) -> None:
        """All ranks that are left, and such as come in, at one point. What others wait in for this rank fails, and brings them
        there: they may know nothing of the error."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                abandon()
                self.join_point()
                return
            except GradringError as over:
                # Refused while ops of other threads are under way, and ended where another rank was refused, or was lost when it had
                # been counted: the next meeting is without it.
                again = over.code == Code.INVALID or over.cause in MEET_AGAIN
                if not again or time.monotonic() > deadline:
                    raise error from over
                time.sleep(0.01)

    def join_point(self) -> bool:
        """A barrier at which ranks may come in, in elastic jobs. Whether any did, or some were lost, since the last."""
        view = self.job.join_point()
        numbers = tuple(view["ranks"])
        changed = view["grew"] != self.grew or self.standing is None or numbers != self.standing.numbers
        if view["grew"] != self.grew:
            self.names.start_anew()
        if changed:
            self.standing = self._find_out(numbers)
            self.grew = view["grew"]  # not before: if ranks are lost meanwhile, that they came in is still to be told
            for follow in _followers:
                follow(self)
        self.oldest = numbers.index(view["oldest"])
        return changed

    def _find_out(self, numbers):
        digest = hashlib.blake2b(self.job.node.encode(), digest_size=16).digest()
        mine = _CARD.pack(digest, self.job.local_rank, self.job.rank, self.standing is None)
        cards = sorted(_CARD.iter_unpack(gather(self.job, mine, len(numbers))), key=lambda card: card[2])
        self.newcomers = frozenset(number for _, _, number, new in cards if new)
        return _standing_of(self.job.rank, [card[:3] for card in cards])


def gather(job: _native.Job, mine: bytes, ranks: int, name: str = "") -> memoryview:
    """The bytes of all ranks, one after the other; ranks with another number of bytes end it as a mismatch, and so does
    another number of ranks than there are."""
    source, target = job.allocate(len(mine)), job.allocate(len(mine) * ranks)
    memoryview(source).cast("B")[:] = mine
    call = Call(Collective.ALLGATHER, dtype=Dtype.UINT8, count=len(mine), input=source.address,
                input_bytes=source.nbytes, output=target.address, output_bytes=target.nbytes, name=name, ranks=ranks)
    job.start(call, [source, target]).wait()
    return memoryview(target).cast("B")


def _standing_of(mine: int, cards: list[tuple[bytes, int, int]]) -> Standing:
    """`mine`: this rank's number; `cards`: node, local rank and number of each rank, by number."""
    nodes: dict[bytes, dict[int, int]] = {}  # of each, number -> local rank
    for node, local_rank, number in cards:
        nodes.setdefault(node, {})[number] = local_rank
    for local in nodes.values():
        # By position where launchers told nothing, or where ranks that are lost left gaps.
        if sorted(local.values()) != list(range(len(local))):
            local.update({number: place for place, number in enumerate(local)})
    mine_on = next(local for local in nodes.values() if mine in local)
    like_mine = [local for local in nodes.values() if mine_on[mine] in local.values()]
    numbers = tuple(number for _, _, number in cards)
    return Standing(rank=numbers.index(mine), size=len(numbers), local_rank=mine_on[mine], local_size=len(mine_on),
                    cross_rank=like_mine.index(mine_on), cross_size=len(like_mine),
                    is_homogeneous=len({len(local) for local in nodes.values()}) == 1, numbers=numbers)


_world: World | None = None
_followers: list[Callable[[World], None]] = []


def followed_by(follow: Callable[[World], None]) -> None:
    """Called at each join point that finds other ranks than the last one."""
    _followers.append(follow)


def enter(world: World | None) -> None:
    """What init() and shutdown() set."""
    global _world
    _world = world


def world() -> World:
    if _world is None:
        raise ValueError("gradring has not been initialized; call init() first")
    return _world


def is_initialized() -> bool:
    return _world is not None


def _standing() -> Standing:
    return world().standing


def rank() -> int:
    """This process's number among all, 0 to size() - 1."""
    return _standing().rank


def size() -> int:
    return _standing().size


def local_rank() -> int:
    """This process's number on its node."""
    return _standing().local_rank


def local_size() -> int:
    return _standing().local_size


def cross_rank() -> int:
    """This node's number among the nodes that have a process of this local rank."""
    return _standing().cross_rank


def cross_size() -> int:
    return _standing().cross_size


def is_homogeneous() -> bool:
    """Whether all nodes have as many ranks."""
    return _standing().is_homogeneous
