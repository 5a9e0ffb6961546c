"""torch.distributed's ProcessGroup on gradring."""

from __future__ import annotations

import torch
import torch.distributed as dist

from .. import _native
from .._native import Call, Collective
from .reduce_ops import how_to_reduce
from .tensors import Place
from .work import Work


def _one(tensors, what):
    if len(tensors) != 1:
        raise ValueError(f"gradring: {what} takes one tensor of a rank, {len(tensors)} were given")
    return tensors[0]


class ProcessGroup(dist.ProcessGroup):
    """One group of ranks, through the daemon of this node. Made by torch.distributed, see gradring.torch.

    Thread-safe as far as torch is: ops of one group are matched across ranks in the order in which
    they are submitted.
    """

    def __init__(self, job: _native.Job, timeout, name: str):
        super().__init__(job.rank, job.size)
        self.job = job
        self._timeout = timeout.total_seconds()
        self._label = name
        self._description = "undefined"

    # ---- what it is ----
    @property
    def is_open(self):
        return self.job is not None

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

    def shutdown(self):
        self.job = None

    def abort(self):
        self.shutdown()

    def set_timeout(self, timeout):
        self._timeout = timeout.total_seconds()

    def __repr__(self):
        return f"<gradring.torch.ProcessGroup {self._label!r}: rank {self.rank()} of {self.size()}>"

    # ---- how ops start ----
    def _start(self, what, calls, outputs, finish=lambda: None, owner=None):
        if self.job is None:
            raise RuntimeError(f"gradring: {what} on a process group that has been destroyed")
        requests = self.job.start_all(calls, owner) if len(calls) > 1 else [self.job.start(calls[0], owner)]
        return Work(f"{what} of {self.size()} ranks", requests, outputs, finish, self._timeout)

    def _move(self, what, collective, source, target, count, outputs=None, **details):
        """An op from one dense tensor, or none, to another, or none, with `count` elements a block."""
        call, finish = _call(collective, source, target, count, **details)
        return self._start(what, [call], outputs if outputs is not None else [target], finish, [source, target])

    # ---- reductions ----
    def allreduce(self, tensors, opts=None):
        opts = opts or dist.AllreduceOptions()
        if any(one.layout == torch.sparse_coo for one in tensors):
            from .sparse import allreduce_sparse

            return allreduce_sparse(self, _one(tensors, "all_reduce of sparse tensors"), opts)
        return self.allreduce_coalesced(tensors, opts)

    def allreduce_coalesced(self, tensors, opts=None):
        details = how_to_reduce(opts.reduceOp if opts is not None else dist.ReduceOp.SUM)
        made = [_call(Collective.ALLREDUCE, one, one, one.numel(), **details) for one in tensors]
        return self._start("all_reduce", [call for call, _ in made], list(tensors), _all(made), list(tensors))

    def reduce(self, tensors, opts):
        tensor = _one(tensors, "reduce")
        root = opts.rootRank
        scratch = tensor if self.rank() == root else None
        return self._move("reduce", Collective.REDUCE, tensor, scratch, tensor.numel(), list(tensors), root=root,
                          **how_to_reduce(opts.reduceOp))

    def reduce_scatter(self, outputs, inputs, opts=None):
        output, parts = _one(outputs, "reduce_scatter"), _one(inputs, "reduce_scatter")
        _check_parts("reduce_scatter", parts, output, self.size())
        return self._reduce_scatter(output, torch.cat([one.reshape(-1) for one in parts]), opts)

    def _reduce_scatter_base(self, output, tensor, opts=None):
        _check_times("reduce_scatter_tensor", tensor, output, self.size())
        return self._reduce_scatter(output, tensor, opts)

    def _reduce_scatter(self, output, tensor, opts):
        details = how_to_reduce(opts.reduceOp if opts is not None else dist.ReduceOp.SUM)
        return self._move("reduce_scatter", Collective.REDUCE_SCATTER, tensor, output, output.numel(), **details)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        details = how_to_reduce(opts.reduceOp if opts is not None else dist.ReduceOp.SUM)
        for output, tensor in zip(outputs, inputs, strict=True):
            _check_times("reduce_scatter_tensor", tensor, output, self.size())
        made = [_call(Collective.REDUCE_SCATTER, tensor, output, output.numel(), **details)
                for output, tensor in zip(outputs, inputs, strict=True)]
        return self._start("reduce_scatter", [call for call, _ in made], list(outputs), _all(made), [inputs, outputs])

    # ---- to all ----
    def broadcast(self, tensors, opts):
        tensor = _one(tensors, "broadcast")
        source = tensor if self.rank() == opts.rootRank else None
        return self._move("broadcast", Collective.BROADCAST, source, tensor, tensor.numel(), list(tensors),
                          root=opts.rootRank)

    def allgather(self, outputs, inputs, opts=None):
        parts, tensor = _one(outputs, "all_gather"), _one(inputs, "all_gather")
        _check_parts("all_gather", parts, tensor, self.size())
        whole = torch.empty((self.size(), tensor.numel()), dtype=tensor.dtype)
        call, _ = _call(Collective.ALLGATHER, tensor, whole, tensor.numel())
        return self._start("all_gather", [call], [list(parts)], _spread(whole, parts), [whole, parts, tensor])

    def _allgather_base(self, output, tensor, opts=None):
        _check_times("all_gather_into_tensor", output, tensor, self.size())
        return self._move("all_gather", Collective.ALLGATHER, tensor, output, tensor.numel())

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, tensor in zip(outputs, inputs, strict=True):
            _check_times("all_gather_into_tensor", output, tensor, self.size())
        made = [_call(Collective.ALLGATHER, tensor, output, tensor.numel())
                for output, tensor in zip(outputs, inputs, strict=True)]
        return self._start("all_gather", [call for call, _ in made], list(outputs), _all(made), [inputs, outputs])

    def allgather_coalesced(self, outputs, inputs, opts=None):
        """`outputs[r][i]` is what rank r gives for the i-th input."""
        wholes = [torch.empty((self.size(), one.numel()), dtype=one.dtype) for one in inputs]
        calls = [_call(Collective.ALLGATHER, one, whole, one.numel())[0]
                 for one, whole in zip(inputs, wholes, strict=True)]

        def finish():
            for i, whole in enumerate(wholes):
                _spread(whole, [parts[i] for parts in outputs])()
        return self._start("all_gather", calls, outputs, finish, [wholes, outputs, inputs])

    # ---- to one, from one ----
    def gather(self, outputs, inputs, opts):
        tensor, mine = _one(inputs, "gather"), self.rank() == opts.rootRank
        whole = torch.empty((self.size(), tensor.numel()), dtype=tensor.dtype) if mine else None
        parts = _one(outputs, "gather") if mine else []
        if mine:
            _check_parts("gather", parts, tensor, self.size())
        call, _ = _call(Collective.GATHER, tensor, whole, tensor.numel(), root=opts.rootRank)
        return self._start("gather", [call], [list(parts)], _spread(whole, parts), [whole, parts, tensor])

    def scatter(self, outputs, inputs, opts):
        output, mine = _one(outputs, "scatter"), self.rank() == opts.rootRank
        whole = None
        if mine:
            parts = _one(inputs, "scatter")
            _check_parts("scatter", parts, output, self.size())
            whole = torch.cat([one.reshape(-1) for one in parts])
        return self._move("scatter", Collective.SCATTER, whole, output, output.numel(), list(outputs),
                          root=opts.rootRank)

    # ---- from each to each ----
    def alltoall_base(self, output, tensor, output_splits, input_splits, opts=None):
        if not output_splits and not input_splits:
            if output.numel() != tensor.numel() or tensor.numel() % self.size() != 0:
                raise ValueError(f"gradring: all_to_all of {tensor.numel()} elements into {output.numel()} among "
                                 f"{self.size()} ranks: give split sizes")
            return self._move("all_to_all", Collective.ALLTOALL, tensor, output, tensor.numel() // self.size())
        given = _elements(tensor, input_splits, self.size())
        taken = _elements(output, output_splits, self.size())
        counts = self._exchange(given)
        told = counts[self.rank()::self.size()]
        if told != taken:
            raise ValueError(f"gradring: all_to_all: the ranks give this one {told} elements, and it takes {taken}")
        return self._move("all_to_all", Collective.ALLTOALL, tensor, output, 0, counts=counts)

    def alltoall(self, outputs, inputs, opts=None):
        given, taken = [one.numel() for one in inputs], [one.numel() for one in outputs]
        counts = self._exchange(given)
        source = torch.cat([one.reshape(-1) for one in inputs])
        whole = torch.empty(sum(taken), dtype=source.dtype)
        call, _ = _call(Collective.ALLTOALL, source, whole, 0, counts=counts)

        def finish():
            for part, got in zip(outputs, whole.split(taken), strict=True):
                part.copy_(got.view(part.shape))
        return self._start("all_to_all", [call], list(outputs), finish, [source, whole, outputs])

    def _exchange(self, numbers):
        """The numbers of all ranks, one rank's after the other's."""
        mine = torch.tensor(numbers, dtype=torch.int64)
        everybody = torch.empty(len(numbers) * self.size(), dtype=torch.int64)
        self._allgather_base(everybody, mine).wait()
        return everybody.tolist()

    # ---- one to one ----
    def send(self, tensors, dst, tag=0):
        tensor = _one(tensors, "send")
        return self._move("send", Collective.SEND, tensor, None, tensor.numel(), list(tensors), root=dst,
                          name=_name_of(tag))

    def recv(self, tensors, src, tag=0):
        tensor = _one(tensors, "recv")
        return self._move("recv", Collective.RECV, None, tensor, tensor.numel(), list(tensors), root=src,
                          name=_name_of(tag))

    def recv_anysource(self, tensors, tag=0):
        raise NotImplementedError("gradring: recv from any source; name the rank")

    # ---- none ----
    def barrier(self, opts=None):
        return self._start("barrier", [Call(Collective.BARRIER)], [])

    # Names that torch uses from 2.13 on.
    all_gather_single = _allgather_base
    reduce_scatter_single = _reduce_scatter_base
    all_to_all_single = alltoall_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced


def _call(collective, source, target, count, **details):
    """The native call, and what is to be done when it is over. Equal tensors: in place."""
    given = Place(source) if source is not None else None
    taken = given if target is source else Place(target) if target is not None else None
    call = Call(collective, dtype=(given or taken).dtype, count=count, input=given.address if given else 0,
                input_bytes=given.nbytes if given else 0, output=taken.address if taken else 0,
                output_bytes=taken.nbytes if taken else 0, **details)
    kept = (given, taken)  # until it is over

    def finish():
        if kept[1] is not None:
            kept[1].bring_home()
    return call, finish


def _all(made):
    def finish():
        for _, one in made:
            one()
    return finish


def _spread(whole, parts):
    def finish():
        for row, part in zip(whole if whole is not None else (), parts):
            part.copy_(row.view(part.shape))
    return finish


def _elements(tensor, splits, size):
    """Elements of each rank's share, of rows as torch counts them."""
    rows = tensor.shape[0] if tensor.dim() else 0
    row = tensor.numel() // rows if rows else 0
    if not splits:
        if rows % size != 0:
            raise ValueError(f"gradring: {rows} rows cannot be shared among {size} ranks: give split sizes")
        splits = [rows // size] * size
    if len(splits) != size or sum(splits) != rows:
        raise ValueError(f"gradring: split sizes {list(splits)} for {rows} rows and {size} ranks")
    return [split * row for split in splits]


def _name_of(tag):
    return f"tag {tag}" if tag else ""


def _check_parts(what, parts, tensor, size):
    if len(parts) != size or any(one.numel() != tensor.numel() or one.dtype != tensor.dtype for one in parts):
        raise ValueError(f"gradring: {what} needs one tensor for each of {size} ranks, all of {tensor.numel()} "
                         f"elements of {tensor.dtype}")


def _check_times(what, large, small, size):
    if large.numel() != small.numel() * size or large.dtype != small.dtype:
        raise ValueError(f"gradring: {what} among {size} ranks needs {size} times {small.numel()} elements of "
                         f"{small.dtype}, not {large.numel()} of {large.dtype}")
