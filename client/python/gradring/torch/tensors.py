"""Tensors as the native library wants them: an address, a length and a type."""

from __future__ import annotations

import torch

from .._native import Call, Collective, Dtype, ReduceOp
from .devices import Device, Ordered, device_of

DTYPES = {
    torch.float32: Dtype.FLOAT32,
    torch.float64: Dtype.FLOAT64,
    torch.float16: Dtype.FLOAT16,
    torch.bfloat16: Dtype.BFLOAT16,
    torch.int8: Dtype.INT8,
    torch.int16: Dtype.INT16,
    torch.int32: Dtype.INT32,
    torch.int64: Dtype.INT64,
    torch.uint8: Dtype.UINT8,
    torch.bool: Dtype.BOOL,
}
for _name, _dtype in (("uint16", Dtype.UINT16), ("uint32", Dtype.UINT32), ("uint64", Dtype.UINT64),
                      ("float8_e4m3fn", Dtype.FLOAT8_E4M3), ("float8_e5m2", Dtype.FLOAT8_E5M2),
                      # Bytes to the daemon, which moves those and refuses to reduce them, by nearly the same name.
                      ("float8_e4m3fnuz", Dtype.FLOAT8_E4M3), ("float8_e5m2fnuz", Dtype.FLOAT8_E5M2),
                      ("float8_e8m0fnu", Dtype.FLOAT8_E5M2)):
    if hasattr(torch, _name):
        DTYPES[getattr(torch, _name)] = _dtype


def dtype_of(tensor: torch.Tensor) -> Dtype:
    """Raises TypeError for what gradring cannot move."""
    if tensor.layout != torch.strided:
        raise TypeError(f"gradring sums sparse tensors in all_reduce only, and those of torch.sparse_coo; this one is {tensor.layout}")
    try:
        return DTYPES[tensor.dtype]
    except KeyError:
        raise TypeError(f"gradring cannot move {tensor.dtype}") from None


def ordered_device(*tensors: torch.Tensor | None) -> Ordered | None:
    """The one device that all of them are on, if its streams wait for ops; None: ops go by way of the host."""
    found = None
    for tensor in tensors:
        if tensor is None:
            continue
        device = device_of(tensor)
        if not isinstance(device, Ordered) or (found is not None and device is not found):
            return None
        found = device
    return found


def scratch(shape, like: torch.Tensor) -> torch.Tensor:
    """Memory with anything in it, where ops on `like` can use it without another copy."""
    return torch.empty(shape, dtype=like.dtype, device=like.device if ordered_device(like) else "cpu")


def dense_of(tensor: torch.Tensor) -> torch.Tensor:
    """Itself where its memory says what it is, else a copy. The imaginary part of a conjugate has it with the other sign."""
    return tensor if tensor.is_contiguous() and not tensor.is_neg() else tensor.detach().resolve_neg().contiguous()


class Place:
    """A tensor to be read or written: itself where it is dense and the library can copy it, else a dense stand-in."""

    def __init__(self, tensor: torch.Tensor, ordered: Ordered | None = None):
        """`ordered`: the tensor's device, where its streams wait for the op."""
        self.tensor = tensor
        self.dtype = dtype_of(tensor)
        self.device = None if ordered else device_of(tensor)
        if self.device is not None:
            self.dense = self.device.host(tensor)  # until it is fetched, with anything in it
        else:
            self.dense = dense_of(tensor)
        self.address = self.dense.data_ptr()
        self.nbytes = self.dense.nbytes

    def bring_home(self) -> None:
        """After it was written."""
        if self.device is not None:
            self.device.deliver([(self.dense, self.tensor)])
        elif self.dense is not self.tensor:
            self.tensor.detach().copy_(self.dense)  # parameters too, as those that are dense


def _in_pairs(source, target, count, details):
    """(source, target, count) of complex numbers as of twice as many floats. torch's own functions do so for some ops only."""
    op = details.get("op", ReduceOp.SUM)
    if op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
        raise TypeError(f"gradring: complex numbers can be summed and averaged, and there is no {op.name} of them")
    if "counts" in details:
        details["counts"] = [2 * one for one in details["counts"]]
    if target is source:
        source = target = torch.view_as_real(target.resolve_conj())
    else:
        source = torch.view_as_real(source.resolve_conj()) if source is not None else None
        target = torch.view_as_real(target.resolve_conj()) if target is not None else None
    return source, target, 2 * count


def check_target(tensor):
    """Before the others are told that we come."""
    if tensor.numel() > 1 and any(step == 0 and length > 1 for step, length in zip(tensor.stride(), tensor.shape)):
        raise ValueError("gradring: a result cannot be written to a tensor whose elements share memory, as those of "
                         "expand() do: give it a contiguous() one")


class Move:
    """A native call from one tensor, or none, to another, or none, which are kept alive. The same twice: in place."""

    def __init__(self, collective, source: torch.Tensor | None, target: torch.Tensor | None, count: int, **details):
        self.collective, self.peer = collective, details.get("root", 0)
        # A result of complex numbers that has no form in pairs: what is written is a copy of it.
        self._conjugate = target if target is not None and target.is_conj() else None
        if (source if source is not None else target).is_complex():
            source, target, count = _in_pairs(source, target, count, details)
        self.device = ordered_device(source, target)
        if self.device is not None:
            details["gpu_stream"] = self.device.current_handle()
        self.given = given = Place(source, self.device) if source is not None else None
        self.taken = taken = given if target is source else Place(target, self.device) if target is not None else None
        # A broadcast's root has its result, maybe in a tensor that cannot be written.
        written = taken is not None and not (collective == Collective.BROADCAST and taken is given)
        if written:
            check_target(taken.tensor)
        # The device whose tensors go by way of the host.
        self.staged = (given and given.device) or (taken and taken.device)
        self.brings = taken.nbytes if taken is not None else 0  # bytes of a result
        # Than in its tensor.
        self.lands_elsewhere = written and (taken.dense is not taken.tensor or self._conjugate is not None)
        self.call = Call(collective, dtype=(given or taken).dtype, count=count, input=given.address if given else 0,
                         input_bytes=given.nbytes if given else 0, output=taken.address if taken else 0,
                         output_bytes=taken.nbytes if taken else 0, **details)

    def fetches(self) -> list:
        """What has to be copied from which device before the call. Nothing of a device that only takes: what it does with the
        tensor has to be over all the same."""
        given, taken = self.given, self.taken
        found = [(given.device, [(given.tensor, given.dense)])] if given is not None and given.device is not None else []
        if taken is not None and taken.device is not None and (given is None or taken.device is not given.device):
            found.append((taken.device, []))
        return found

    def bring_home(self) -> None:
        """After the call is done."""
        if self.taken is not None:
            self.taken.bring_home()
            if self._conjugate is not None:
                self._conjugate.detach().copy_(torch.view_as_complex(self.taken.tensor))
