"""DistributedDataParallel's gradients by gradring, whatever backend its process group has otherwise.

    model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    model.register_comm_hook(None, gradring.torch.allreduce_hook)
"""

# No annotations as text here: torch compares those of hooks with the types themselves.

import torch
import torch.distributed as dist

from .._native import Call, Collective, ReduceOp, Wire
from .process_group import ProcessGroup
from .devices import device_of
from .tensors import Move, dtype_of
from .untraced import untraced
from .work import Work

_WHAT = "mean of a bucket"

# Made for hooks whose state is None, where torch's default group is another backend's.
_own: ProcessGroup | None = None


@untraced
def allreduce_hook(state, bucket: dist.GradBucket):
    """The mean of a bucket over all ranks, summed where it lies.

    `state`: a process group of the backend "gradring", of the ranks that the model has; None for all ranks. The first
    call moves the bucket into memory that is shared with the daemon; from then on nothing is copied here.
    """
    return _mean(state, bucket, Wire.DEFAULT)


@untraced
def bf16_wire_hook(state, bucket: dist.GradBucket):
    """The same; between nodes float32 gradients travel as bfloat16, and are summed as float32."""
    return _mean(state, bucket, Wire.BFLOAT16)


@untraced
def fp16_wire_hook(state, bucket: dist.GradBucket):
    """The same; between nodes float32 gradients travel as float16, and are summed as float32."""
    return _mean(state, bucket, Wire.FLOAT16)


def _mean(state, bucket, wire):
    group = _group_of(state)
    buffer = bucket.buffer()
    if buffer.is_sparse:
        return group.allreduce([buffer.div_(group.size())]).get_future().then(lambda told: told.value()[0])
    numbers = torch.view_as_real(buffer) if buffer.is_complex() else buffer
    if wire != Wire.DEFAULT and numbers.dtype != torch.float32:
        wire = Wire.DEFAULT
    if device_of(buffer) is not None:
        move = Move(Collective.ALLREDUCE, numbers, numbers, numbers.numel(), op=ReduceOp.AVERAGE, wire=wire)
        return group.start(_WHAT, [move], buffer).get_future()
    group.usable(_WHAT)  # before its memory is asked for
    at, nbytes = group.residence.address_of(buffer), buffer.numel() * buffer.element_size()
    call = Call(Collective.ALLREDUCE, dtype=dtype_of(numbers), count=numbers.numel(), input=at, input_bytes=nbytes,
                output=at, output_bytes=nbytes, op=ReduceOp.AVERAGE, wire=wire)
    return group.start_calls(_WHAT, [call], buffer, owner=buffer).get_future()


def own_group() -> ProcessGroup:
    """Of all ranks, for models whose process group is not gradring's; all of them must ask when one does first."""
    global _own
    if _own is None or not _own.is_open:
        _own = dist.new_group(backend="gradring")
    return _own


def _group_of(state) -> ProcessGroup:
    group = state if state is not None else dist.group.WORLD
    if isinstance(group, ProcessGroup):
        return group
    if state is not None:
        raise TypeError("gradring: the state of this communication hook is a process group of the backend "
                        f"\"gradring\", or None, not {state!r}")
    return own_group()
