"""torch.distributed's ProcessGroup on gradring."""

from __future__ import annotations

import collections
import functools
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import AllgatherOptions

from .. import _native
from .._native import Call, Collective
from .blocks import check_equal, check_lists, check_times, joined, matched, one_of, rows_of_ranks, sizes_of, spread, stacked
from .ordered import OrderedWork, Unheard
from .overloads import also_bare
from .pool import Allocations
from .reduce_ops import reduction
from .residence import Residence
from .staging import Stage
from .tensors import Move, scratch
from .untraced import untraced
from .work import Finisher, Together, Work, stop_all

_SMALL = 64  # elements, of works that are kept alive for a while
# Seconds that tensors of a device live longer than their op. Whoever submits small ones in turn would else share the interpreter
# with a thread that wakes for each: some 100 us.
_REST = 1e-3


def _nothing():
    pass


def _end_of(moves, finish):
    """What is to be done when they have ended; None: nothing."""
    if finish is None and not any([move.lands_elsewhere for move in moves]):
        return None

    def end():
        for move in moves:
            move.bring_home()
        if finish is not None:
            finish()
    return end


@untraced
class ProcessGroup(dist.ProcessGroup):
    """One group of ranks, through the daemon of this node. Made by torch.distributed, see gradring.torch.

    Thread-safe as far as torch is: ops of one group are matched across ranks in the order in which
    they are submitted.
    """

    _is_alone = False  # as far as is known

    def __init__(self, job: _native.Job, timeout, name: str, at_shutdown=lambda: None):
        """`timeout`: a timedelta; `at_shutdown()`: called once, before the job is left."""
        super().__init__(job.rank, job.size)
        self._at_shutdown = at_shutdown
        self.job = job
        self.residence = Residence(job)
        self._stage = Stage()
        self._allocations = Allocations()
        # By which results come to a device: a stream, and whoever waits for the end of each work that it brings.
        self._ways: dict[Any, tuple[Any, Finisher]] = {}
        self._unheard = Unheard()
        self._coalesced: list[Work] | None = None
        self._timeout = timeout.total_seconds()
        self._size = job.size  # size() takes as long as an op's tensor to be looked at
        self._of_ranks = f" of {job.size} ranks"
        self._label = name
        self._description = "undefined"
        # DDP's join() hands a work to C++, which waits for it in the backward pass and does not keep it alive for
        # Python; without its Python half it would be waited for for ever.
        self._recent: collections.deque[Work] = collections.deque(maxlen=64)

    # ---- what it is ----
    @property
    def is_open(self):
        return self.job is not None

    @property
    def timeout(self):
        """Seconds of each wait without one of its own."""
        return self._timeout

    def getBackendName(self):
        return "gradring"

    # torch gives names, by which functional collectives find their group.
    def getGroupName(self):
        return self._label

    def setGroupName(self, name):
        self._label = name

    def getGroupDesc(self):
        return self._description

    def setGroupDesc(self, description):
        self._description = description

    # torch asks a group's backends in C++ for what these say, and there are none: one serves tensors of all devices.
    @property
    def _device_types(self):
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        return [torch.device("cpu"), *([accelerator] if accelerator is not None else [])]

    # FSDP2 asks so for memory (set_allocate_memory_from_process_group_for_comm).
    def _get_backend(self, device):
        return self._allocations

    # ---- its end, after which the other ranks know that this one has left ----
    def shutdown(self):
        """What devices wait for may come for a second yet; then as abort()."""
        self._leave(stop_all)

    def abort(self):
        """What is under way fails now, whoever waits for it."""
        self._leave(lambda watches: None)

    def _leave(self, stop):
        job, residence = self.job, self.residence
        self.job = self.residence = None
        if job is None:
            return
        watches = [watch for _, watch in self._ways.values()]
        self._at_shutdown()
        self._stage.close()
        stop(watches)
        job.leave()
        stop_all(watches)
        residence.leave()
        self._recent.clear()

    def set_timeout(self, timeout):
        self._timeout = timeout.total_seconds()

    def __repr__(self):
        return f"<gradring.torch.ProcessGroup {self._label!r}: rank {self.rank()} of {self.size()}>"

    # ---- ops that are to be waited for together ----
    def _start_coalescing(self, device):
        self._coalesced = []

    def _end_coalescing(self, device):
        works, self._coalesced = self._coalesced, None
        return Together(works)

    def _begun(self, work):
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    # ---- how ops start ----
    def start(self, what, moves, outputs, finish=None):
        """Submits moves as one Work, whose result is `outputs`; see Work for `finish`, before which they are home."""
        end = _end_of(moves, finish)
        devices = {move.device for move in moves}
        if len(devices) == 1 and (device := devices.pop()) is not None:
            return self._start_on(device, what, moves, outputs, end)
        fetches = [fetch for move in moves for fetch in move.fetches()]
        staged = {move.staged for move in moves}
        return self.start_calls(what, [move.call for move in moves], outputs, end or _nothing, moves, fetches,
                                staged.pop() if len(staged) == 1 else None)

    def start_calls(self, what, calls, outputs, finish=_nothing, owner=None, fetches=(), device=None, timeout=None):
        """Submits native calls as one Work, behind the copies of `fetches` and all ops that were started before. `device`: see
        Work. `timeout`: seconds; None: the group's."""
        job = self.usable(what)

        def submit():
            return _start_all(job, calls, owner)
        late = bool(fetches) or self._stage.busy()
        work = Work(what + self._of_ranks, None if late else submit(), outputs, finish, timeout or self._timeout, device)
        if late:
            self._stage.add(fetches, lambda: work.submitted(submit()), work.not_submitted)
        return self._begun(work)

    def _start_on(self, device, what, moves, outputs, finish):
        if self._stage.busy():
            self._stage.wait_until_idle()
        requests = _start_all(self.usable(what), [move.call for move in moves], moves)
        stream, watch = self._way_of(moves[0])
        work = OrderedWork(what + self._of_ranks, requests, moves, outputs, finish, self._timeout, device, stream)
        watch.add(work)
        return self._begun(work)

    def _way_of(self, move):
        """What goes to one rank or comes from one may wait for what others do: it keeps nobody else's results waiting, nor
        those who are to hear of an error."""
        alone = move.collective in (Collective.SEND, Collective.RECV)
        way = (move.device, move.collective, move.peer) if alone else move.device
        if way not in self._ways:
            watch = Finisher("gradring-watch", functools.partial(OrderedWork.complete, tell=self._unheard.add), _REST)
            self._ways[way] = (move.device.stream(), watch)
        return self._ways[way]

    def usable(self, what):
        """The job, for an op. Raises RuntimeError where it has been left."""
        self._unheard.tell()
        if self.job is None:
            raise RuntimeError(f"gradring: {what} on a process group that has been destroyed")
        if not self._is_alone:
            self._check_alone()
        return self.job

    def _check_alone(self):
        """Not when it is made: torch tells nobody then which backends were asked for."""
        asked = dist.get_backend_config(self)
        if any(one.partition(":")[2] != self.getBackendName() for one in asked.split(",")):
            raise ValueError(f"gradring: a process group of {asked!r}: torch has gradring serve tensors of all devices in it, and no "
                             "other backend. Name \"gradring\" alone, and have a group of its own for the other, as "
                             "new_group(backend=\"nccl\")")
        self._is_alone = True

    def _move(self, what, collective, source, target, count, outputs=None, **details):
        """An op from one dense tensor, or none, to another, or none, with `count` elements a block."""
        move = Move(collective, source, target, count, **details)
        return self.start(what, [move], outputs if outputs is not None else [target])

    # ---- reductions ----
    @also_bare(dist.AllreduceOptions, "op", "timeout")
    def allreduce(self, tensors, opts=None):
        opts = opts or dist.AllreduceOptions()
        if any([one.is_sparse for one in tensors]):
            from .sparse import allreduce_sparse

            return allreduce_sparse(self, one_of(tensors, "all_reduce of sparse tensors"), opts)
        return self.allreduce_coalesced(tensors, opts)

    def allreduce_coalesced(self, tensors, opts=None):
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        made = [reduction(self._size, Collective.ALLREDUCE, one, one, one.numel(), op) for one in tensors]
        work = self.start("all_reduce", made, list(tensors))
        if sum([one.numel() for one in tensors]) <= _SMALL:
            self._recent.append(work)
        return work

    @also_bare(dist.ReduceOptions, "root", "op", "timeout")
    def reduce(self, tensors, opts):
        tensor = one_of(tensors, "reduce")
        root = opts.rootRank
        scratch = tensor if self.rank() == root else None
        move = reduction(self._size, Collective.REDUCE, tensor, scratch, tensor.numel(), opts.reduceOp, root=root)
        return self.start("reduce", [move], list(tensors))

    @also_bare(dist.ReduceScatterOptions, "op", "timeout")
    def reduce_scatter(self, outputs, inputs, opts=None):
        output, parts = one_of(outputs, "reduce_scatter"), one_of(inputs, "reduce_scatter")
        sizes = sizes_of("reduce_scatter", parts, output, self.rank(), self.size())
        return self._reduce_scatter(output, joined(parts), opts, **sizes)

    def _reduce_scatter_base(self, output, tensor, opts=None):
        check_times("reduce_scatter_tensor", tensor, output, self.size())
        return self._reduce_scatter(output, tensor, opts, output.numel())

    def _reduce_scatter(self, output, tensor, opts, count, **sizes):
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        move = reduction(self._size, Collective.REDUCE_SCATTER, tensor, output, count, op, **sizes)
        return self.start("reduce_scatter", [move], [output])

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        for output, tensor in zip(outputs, inputs, strict=True):
            check_times("reduce_scatter_tensor", tensor, output, self.size())
        made = [reduction(self._size, Collective.REDUCE_SCATTER, tensor, output, output.numel(), op)
                for output, tensor in zip(outputs, inputs, strict=True)]
        return self.start("reduce_scatter", made, list(outputs))

    # ---- to all ----
    @also_bare(dist.BroadcastOptions, "root", "timeout")
    def broadcast(self, tensors, opts):
        tensor = one_of(tensors, "broadcast")
        source = tensor if self.rank() == opts.rootRank else None
        return self._move("broadcast", Collective.BROADCAST, source, tensor, tensor.numel(), list(tensors),
                          root=opts.rootRank)

    @also_bare(AllgatherOptions, "timeout")
    def allgather(self, outputs, inputs, opts=None):
        parts, tensor = one_of(outputs, "all_gather"), one_of(inputs, "all_gather")
        sizes = sizes_of("all_gather", parts, tensor, self.rank(), self.size())
        whole = scratch(sum(one.numel() for one in parts), tensor)
        move = Move(Collective.ALLGATHER, tensor, whole, **sizes)
        return self.start("all_gather", [move], [stacked(whole, parts)], spread(whole, parts))

    def _allgather_base(self, output, tensor, opts=None):
        check_times("all_gather_into_tensor", output, tensor, self.size())
        return self._move("all_gather", Collective.ALLGATHER, tensor, output, tensor.numel())

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, tensor in zip(outputs, inputs, strict=True):
            check_times("all_gather_into_tensor", output, tensor, self.size())
        made = [Move(Collective.ALLGATHER, tensor, output, tensor.numel())
                for output, tensor in zip(outputs, inputs, strict=True)]
        return self.start("all_gather", made, list(outputs))

    def allgather_coalesced(self, outputs, inputs, opts=None):
        """`outputs[r][i]` is what rank r gives for the i-th input."""
        wholes = [scratch((self.size(), one.numel()), one) for one in inputs]
        made = [Move(Collective.ALLGATHER, one, whole, one.numel()) for one, whole in zip(inputs, wholes, strict=True)]

        def finish():
            for i, whole in enumerate(wholes):
                spread(whole, [parts[i] for parts in outputs])()
        return self.start("all_gather", made, outputs, finish)

    # ---- to one, from one ----
    @also_bare(dist.GatherOptions, "root", "timeout")
    def gather(self, outputs, inputs, opts):
        tensor, mine = one_of(inputs, "gather"), self.rank() == opts.rootRank
        whole = scratch((self.size(), tensor.numel()), tensor) if mine else None
        parts = one_of(outputs, "gather") if mine else []
        if mine:
            check_equal("gather", parts, tensor, self.size())
        move = Move(Collective.GATHER, tensor, whole, tensor.numel(), root=opts.rootRank)
        return self.start("gather", [move], [list(parts)], spread(whole, parts))

    @also_bare(dist.ScatterOptions, "root", "timeout")
    def scatter(self, outputs, inputs, opts):
        output, mine = one_of(outputs, "scatter"), self.rank() == opts.rootRank
        whole = None
        if mine:
            parts = one_of(inputs, "scatter")
            check_equal("scatter", parts, output, self.size())
            whole = joined(parts)
        return self._move("scatter", Collective.SCATTER, whole, output, output.numel(), list(outputs),
                          root=opts.rootRank)

    # ---- from each to each ----
    def alltoall_base(self, output, tensor, output_splits, input_splits, opts=None):
        if not output_splits and not input_splits:
            if output.numel() != tensor.numel() or tensor.numel() % self.size() != 0:
                raise ValueError(f"gradring: all_to_all of {tensor.numel()} elements into {output.numel()} among "
                                 f"{self.size()} ranks: give split sizes")
            return self._move("all_to_all", Collective.ALLTOALL, tensor, output, tensor.numel() // self.size())
        given = rows_of_ranks(tensor, input_splits, self.size())
        taken = rows_of_ranks(output, output_splits, self.size())
        return self._move("all_to_all", Collective.ALLTOALL, tensor, output, 0, counts=self._exchanged(given, taken))

    def alltoall(self, outputs, inputs, opts=None):
        check_lists("all_to_all", outputs, inputs, self.size())
        taken = [one.numel() for one in outputs]
        counts = self._exchanged([one.numel() for one in inputs], taken)
        source = joined(inputs)
        whole = scratch(sum(taken), source)
        move = Move(Collective.ALLTOALL, source, whole, 0, counts=counts)
        return self.start("all_to_all", [move], list(outputs), spread(whole, outputs))

    def _exchanged(self, given, taken):
        """Of all ranks what they give, as all of them take it."""
        return matched(self.exchange([*given, *taken]), self.size())

    def exchange(self, numbers):
        """The numbers of all ranks, one rank's after the other's."""
        mine = torch.tensor(numbers, dtype=torch.int64, device="cpu")
        everybody = torch.empty(len(numbers) * self.size(), dtype=torch.int64, device="cpu")
        self._allgather_base(everybody, mine).wait()
        return everybody.tolist()

    # ---- one to one ----
    def send(self, tensors, dst, tag=0):
        tensor = one_of(tensors, "send")
        return self._move("send", Collective.SEND, tensor, None, tensor.numel(), list(tensors), root=dst,
                          name=_name_of(tag))

    def recv(self, tensors, src, tag=0):
        tensor = one_of(tensors, "recv")
        return self._move("recv", Collective.RECV, None, tensor, tensor.numel(), list(tensors), root=src,
                          name=_name_of(tag))

    def recv_anysource(self, tensors, tag=0):
        raise NotImplementedError("gradring: recv from any source; name the rank")

    # ---- none ----
    @also_bare(dist.BarrierOptions, "timeout")
    def barrier(self, opts=None):
        given = opts.timeout.total_seconds() if opts is not None else 0
        return self.start_calls("barrier", [Call(Collective.BARRIER)], [], timeout=given if given > 0 else None)

    # Names that torch uses from 2.13 on.
    all_gather_single = _allgather_base
    reduce_scatter_single = _reduce_scatter_base
    all_to_all_single = alltoall_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced


def _start_all(job, calls, owner):
    return job.start_all(calls, owner) if len(calls) > 1 else [job.start(calls[0], owner)]


def _name_of(tag):
    return f"tag {tag}" if tag else ""
