"""The collectives, on the tensors of any framework: what all front ends are made of.

Each starts an op and returns its Handle. Tensors that are in use must not be written, and outputs not read, before the
handle was waited for. `name`: ops of one name and kind are matched across ranks with each other; without, by their
place in the program. `process_set`: the ranks that take part, which all must call it. Errors that concern a call alone
are raised at once; what only all ranks together can see, by the handle, on each of them.
"""

from __future__ import annotations

import math
import operator
from array import array
from typing import Any, Callable, Sequence

from ._native import Call, Cause, Code, Collective, Dtype, ReduceOp, Wire
from .errors import GradringError
from .handles import Handle, RequestHandle, StagedHandle
from .places import FLOATS, Frontend, Place
from .process_sets import ProcessSet, checked, global_process_set
from .reduce_ops import Adasum, Average, Sum, check_op, wire_of
from .world import gather, rank


def allreduce(frontend: Frontend, tensors: Sequence, outputs: Sequence | None = None, *, op=Average,
              name: str | None = None, prescale: float = 1.0, postscale: float = 1.0, wire: Wire | str = Wire.DEFAULT,
              priority: int = 0, process_set: ProcessSet = global_process_set) -> Handle:
    """The handle's result: a list of the outputs. `outputs`: the tensors themselves for in place; None: new ones.
    Several tensors are one op to the others: all of them are handed over, or none is."""
    check_op(op)
    _check_factors(prescale, postscale)
    wire = wire_of(wire)
    if op is Adasum:
        from .adasum import allreduce_adasum

        return allreduce_adasum(frontend, tensors, outputs, name=name, prescale=prescale, postscale=postscale,
                                process_set=process_set)
    details = {"op": op, "wire": wire, "priority": _checked_priority(priority)}
    homes = []
    calls = []
    names = checked(process_set).names()
    full = names.check(name, "allreduce")
    for i, tensor in enumerate(tensors):
        home = Home(frontend, tensor, outputs[i] if outputs is not None else None)
        own = _own_scaling(home.given.dtype, op, prescale, postscale)
        if own and prescale != 1.0:
            home.replace_input(frontend.scaled(home.source, prescale))
        if own and op == Average:
            home.sum_in_64_bits()
        if own:
            home.finish_with(_integers(frontend, op == Average, postscale))
        given = home.given
        calls.append(_call(Collective.ALLREDUCE, given, home.taken, given.count, name=_part("allreduce", full, i, len(tensors)),
                           **(details | {"op": Sum} if own and op == Average else details),
                           prescale=1.0 if own else prescale, postscale=1.0 if own else postscale))
        homes.append(home)
    handle = _start(process_set, calls, homes,
                    lambda requests: [home.bring(request) for home, request in zip(homes, requests, strict=True)])
    names.hold(full, handle)
    return handle


def broadcast(frontend: Frontend, tensor, output=None, *, root_rank: int, name: str | None = None,
              process_set: ProcessSet = global_process_set) -> Handle:
    """Result: the output. `root_rank`: of the whole job, also where the set is not all of it."""
    names = checked(process_set).names()
    full = names.check(name, "broadcast")
    home = Home(frontend, tensor, output)
    source = home.given if rank() == root_rank else None
    call = _call(Collective.BROADCAST, source, home.taken, home.taken.count, name=full,
                 root=process_set.place_of(root_rank))
    handle = _start(process_set, [call], home, lambda _: home.bring())
    names.hold(full, handle)
    return handle


def reducescatter(frontend: Frontend, tensors: Sequence, *, op=Average, name: str | None = None, prescale: float = 1.0,
                  postscale: float = 1.0, wire: Wire | str = Wire.DEFAULT,
                  process_set: ProcessSet = global_process_set) -> Handle:
    """Result: this rank's part of each sum. Rows are shared out evenly; where they cannot be, the first ranks have one
    more."""
    check_op(op)
    _check_factors(prescale, postscale)
    wire = wire_of(wire)
    if op not in (Average, Sum):
        raise NotImplementedError(f"gradring: reducescatter with {op}; it takes Average or Sum")
    checked(process_set).job()  # before its rows are shared out: there are none for a rank that is not in it
    names = checked(process_set).names()
    full = names.check(name, "reducescatter")
    calls, kept, outputs, ends = [], [], [], []
    size = process_set.size()
    for i, tensor in enumerate(tensors):
        source = frontend.dense(tensor)
        given = frontend.place(source)
        if not given.shape:
            raise ValueError("gradring: reducescatter shares out rows, and a scalar has none")
        own = _own_scaling(given.dtype, op, prescale, postscale)
        if own and prescale != 1.0:
            source = frontend.scaled(source, prescale)
            given = frontend.place(source)
        rows = _shares(given.shape[0], size)
        width = given.count // given.shape[0] if given.shape[0] else 0
        output = sums = frontend.empty((rows[process_set.rank()], *given.shape[1:]), tensor)
        if own and op == Average and _is_small(given):
            source = frontend.widened(source)
            given = frontend.place(source)
            sums = frontend.empty((rows[process_set.rank()], *given.shape[1:]), source)
        calls.append(_call(Collective.REDUCE_SCATTER, given, frontend.place(sums), 0, op=Sum if own else op,
                           name=_part("reducescatter", full, i, len(tensors)), counts=[share * width for share in rows],
                           wire=wire, prescale=1.0 if own else prescale, postscale=1.0 if own else postscale))
        if own:
            ends.append((_integers(frontend, op == Average, postscale), sums, output))
        kept.append(source)
        outputs.append(output)

    def finish(_):
        for end, sums, output in ends:
            end(sums, output, size)
        return [frontend.result(output, tensor) for output, tensor in zip(outputs, tensors, strict=True)]
    handle = _start(process_set, calls, [kept, outputs], finish)
    names.hold(full, handle)
    return handle


def allgather(frontend: Frontend, tensors: Sequence, *, name: str | None = None,
              process_set: ProcessSet = global_process_set, equal: bool = False, now: bool = False,
              whole: Sequence[int] = (), as_many: Callable[[], bool] = lambda: False) -> Handle:
    """Result: of each tensor, the rows of all ranks, one below the other. Ranks may have different numbers of rows.
    `equal`: they do not, so nobody need ask for them. `now`: the caller will wait at once. `whole`: the shape of what these
    are parts of, which has to be the same everywhere. `as_many`: whether it has no
    room for other numbers of rows than its own, asked once the op is done, which others may be content with."""
    names = checked(process_set).names()
    full = names.check(name, "allgather")
    sources = [frontend.dense(tensor) for tensor in tensors]
    places = [frontend.place(source) for source in sources]
    for place in places:
        if not place.shape:
            raise ValueError("gradring: allgather puts rows together, and a scalar has none; give it one dimension")
    full = full or names.automatic("allgather")  # not before: a call that is refused has no number

    def work():
        if equal or not places:
            rows = [[place.shape[0]] * process_set.size() for place in places]
        else:
            rows = _exchange_rows(process_set, full, places, whole)
        calls, outputs = [], []
        for i, place in enumerate(places):
            width = math.prod(place.shape[1:])
            output = frontend.empty((sum(rows[i]), *place.shape[1:]), tensors[i])
            calls.append(_call(Collective.ALLGATHER, place, frontend.place(output), 0,
                               name=numbered(full, i, len(places)), counts=[count * width for count in rows[i]]))
            outputs.append(output)
        _start(process_set, calls, [sources, outputs], None).wait()
        for counts in rows if as_many() else []:
            _agree(process_set, full, "numbers of rows", counts)
        return [frontend.result(output, tensor) for output, tensor in zip(outputs, tensors, strict=True)]
    return staged(names, full, work, now)


def alltoall(frontend: Frontend, tensor, splits: Sequence[int] | None = None, *, name: str | None = None,
             process_set: ProcessSet = global_process_set, now: bool = False) -> Handle:
    """Result: the rows that the others had for this rank, in the order of ranks, and a list of how many each had.
    `splits[r]`: how many of this rank's rows are rank r's; None: all the same."""
    names = checked(process_set).names()
    full = names.check(name, "alltoall")
    source = frontend.dense(tensor)
    place = frontend.place(source)
    process_set.job()  # as above
    size, mine = process_set.size(), process_set.rank()
    if not place.shape:
        raise ValueError("gradring: alltoall shares out rows, and a scalar has none")
    splits = _checked_splits(splits, place.shape[0], size)
    full = full or names.automatic("alltoall")
    width = math.prod(place.shape[1:])

    def work():
        told = _gather_numbers(process_set, f"{full}/rows", [width, int(place.dtype), *splits])
        _agree(process_set, full, "widths of rows", [one[0] for one in told])
        _agree(process_set, full, "types", [_name_of(one[1]) for one in told])
        rows = [one[2:] for one in told]
        received = [row[mine] for row in rows]
        output = frontend.empty((sum(received), *place.shape[1:]), tensor)
        call = _call(Collective.ALLTOALL, place, frontend.place(output), 0, name=full,
                     counts=[count * width for row in rows for count in row])
        _start(process_set, [call], [source, output], None).wait()
        return frontend.result(output, tensor), received
    return staged(names, full, work, now)


def barrier(*, process_set: ProcessSet = global_process_set) -> Handle:
    """Result: None, once all ranks have called it."""
    return _start(process_set, [Call(Collective.BARRIER)], None, None)


class Home:
    """One tensor's way through an op: from where it lies, through a dense form, to where the result belongs."""

    def __init__(self, frontend: Frontend, tensor, output=None):
        self._frontend = frontend
        self._tensor = tensor
        self._target = output
        self._end = None
        self._sums = None
        self.source = frontend.dense(tensor, writable=output is tensor)
        self.given = frontend.place(self.source)
        if output is None:
            self.dense = frontend.empty(self.given.shape, tensor)
        elif output is tensor:
            self.dense = self.source
        else:
            self.dense = frontend.dense(output, writable=True)
        self.taken = self.given if self.dense is self.source else frontend.place(self.dense)
        if (self.taken.count, self.taken.dtype) != (self.given.count, self.given.dtype):
            # The daemon would write what the op has, also over what lies behind.
            raise ValueError(f"gradring: the result is {_in_words(self.given)}, and the output {_in_words(self.taken)}")

    def replace_input(self, tensor):
        self.source = tensor
        self.given = self._frontend.place(tensor)

    def sum_in_64_bits(self):
        """An average has room in its type, and what it is made of may have none."""
        if _is_small(self.given):
            self.source = self._sums = self._frontend.widened(self.source)
            self.given = self.taken = self._frontend.place(self.source)

    def finish_with(self, end):
        self._end = end

    def bring(self, request=None) -> Any:
        """`request`: of the op, where there is something to do to its result."""
        if self._end is not None:
            sums = self.dense if self._sums is None else self._sums
            self._end(sums, self.dense, request.result.ranks_min)  # not all, where one was lost before it
        if self._target is None:
            return self._frontend.result(self.dense, self._tensor)
        if self.dense is not self._target:
            self._frontend.copy(self.dense, self._target)
        return self._target


def _in_words(place):
    return f"{place.count} {_name_of(place.dtype)}"


def _name_of(dtype):
    return Dtype(dtype).name.lower()


def _call(collective, given: Place | None, taken: Place | None, count: int, **details) -> Call:
    known = given or taken
    return Call(collective, dtype=known.dtype, count=count, input=given.address if given else 0,
                input_bytes=given.nbytes if given else 0, output=taken.address if taken else 0,
                output_bytes=taken.nbytes if taken else 0, **details)


def _start(process_set, calls, owner, finish) -> RequestHandle:
    job = checked(process_set).job()
    requests = job.start_all(calls, owner) if len(calls) > 1 else [job.start(one, owner) for one in calls]
    return RequestHandle(requests, finish and (lambda: finish(requests)))


def staged(names, full, work, now):
    if now:
        handle = RequestHandle([], lambda: names.in_turn(full, work)())
    else:
        handle = StagedHandle(names.in_turn(full, work))
    names.hold(full, handle)
    return handle


def _check_factors(*factors) -> None:
    """Raises TypeError for what is no number, ValueError for those without a value."""
    for factor in factors:
        try:
            finite = math.isfinite(factor)
        except (TypeError, ValueError):  # the latter of an array of several
            raise TypeError(f"gradring: {factor!r} is nothing to scale by: prescale_factor and postscale_factor are one number "
                            "each") from None
        if not finite:
            raise ValueError(f"gradring: {factor} is nothing to scale by")


def _own_scaling(dtype: Dtype, op: ReduceOp, prescale: float, postscale: float) -> bool:
    """Whether averages and factors are ours to compute: the daemon does so for floating point numbers alone. Raises
    TypeError for an average that there is not."""
    if dtype == Dtype.BOOL and op == Average:
        raise TypeError("gradring: the average of bool is no bool; average it as float32, or give op=Max or op=Min, which "
                        "are \"any\" and \"all\"")
    return dtype not in FLOATS and (op == Average or prescale != 1.0 or postscale != 1.0)


def _checked_priority(priority) -> int:
    if not hasattr(priority, "__index__") or not -1 << 31 <= operator.index(priority) < 1 << 31:
        raise TypeError(f"gradring: priority is {priority!r}: it takes a whole number of 32 bits, and the highest goes first")
    return operator.index(priority)


def _is_small(integers: Place) -> bool:
    return integers.nbytes < 8 * integers.count


def _integers(frontend, average, factor):
    def end(sums, tensor, ranks):
        if average:
            frontend.divide(sums, ranks, tensor)
        if factor != 1.0:
            frontend.copy(frontend.scaled(tensor, factor), tensor)
    return end


def numbered(full: str | None, i: int, count: int) -> str | None:
    """The name of the i-th op of several. Ranks that have another number of them wait for one another, and none takes the
    others' tensor for one of its own."""
    return f"{full}/{i} of {count}" if full and count > 1 else full


def _part(kind, full, i, count):
    """The same where the ops may have no name: the first has one nevertheless, and nobody's result is whole without it."""
    return numbered(full, i, count) if full or count == 1 or i > 0 else f"{kind} of {count}"


def _shares(rows: int, size: int) -> list[int]:
    return [rows // size + (rank < rows % size) for rank in range(size)]


def _checked_splits(splits, rows, size) -> list[int]:
    if splits is None:
        if rows % size:
            raise ValueError(f"gradring: alltoall of {rows} rows among {size} ranks: give splits")
        return [rows // size] * size
    splits = [operator.index(one) for one in splits]
    if len(splits) != size or sum(splits) != rows or min(splits, default=0) < 0:
        raise ValueError(f"gradring: alltoall of {rows} rows among {size} ranks with splits {splits}")
    return splits


def _exchange_rows(process_set, full, places, whole) -> list[list[int]]:
    """Of each tensor, how many rows each rank has."""
    mine = [number for place in places for number in (place.shape[0], math.prod(place.shape[1:]), int(place.dtype))]
    told = _gather_numbers(process_set, f"{full}/rows", [*mine, *whole])
    _agree(process_set, full, "shape", [tuple(one[len(mine):]) for one in told])
    for i in range(len(places)):
        _agree(process_set, full, "widths of rows", [one[3 * i + 1] for one in told])
        _agree(process_set, full, "types", [_name_of(one[3 * i + 2]) for one in told])
    return [[one[3 * i] for one in told] for i in range(len(places))]


def _gather_numbers(process_set, name, numbers: list[int]) -> list[list[int]]:
    """One list of each rank; ranks with lists of other lengths end it as a mismatch."""
    mine = array("q", numbers).tobytes()
    told = gather(process_set.job(), mine, process_set.size(), name).cast("q").tolist()
    lists = [told[at:at + len(numbers)] for at in range(0, len(told), len(numbers))]
    for rank, one in zip(process_set.ranks, lists, strict=False):
        if not any(one):  # there is no type 0
            raise GradringError(f"rank {rank} has joined, and '{name.removesuffix('/rows')}' needs its rows",
                                Code.FAILED, Cause.MISMATCH)
    return lists


def _agree(process_set, full, what, values):
    ranks = process_set.ranks  # as of now: some may have been lost meanwhile
    for rank, value in zip(ranks, values, strict=False):
        if value != values[0]:
            raise GradringError(f"the ranks do not agree on the {what} of '{full}': rank {ranks[0]} has {values[0]}, "
                                f"rank {rank} has {value}", Code.FAILED, Cause.MISMATCH)
