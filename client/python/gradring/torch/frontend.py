"""torch's tensors, as tensors to exchange."""

from __future__ import annotations

from typing import Any

import torch

from ..arrays import ARRAYS
from ..places import Place
from .tensors import dense_of, dtype_of


class Tensors:
    """The Frontend of torch.Tensor, of any type that gradring knows, bfloat16 too. Whoever starts an op on a tensor of a
    device waits until that is computed."""

    def dense(self, tensor: Any, writable: bool = False) -> torch.Tensor:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"gradring: a {type(tensor).__name__} is no torch.Tensor")
        if tensor.layout != torch.strided:
            raise TypeError(f"gradring: a tensor of {tensor.layout}; sparse_allreduce_async takes sparse ones, of COO")
        dtype_of(tensor)  # before a copy of what cannot be moved
        if tensor.device.type != "cpu":
            return dense_of(tensor.detach().to("cpu"))
        return dense_of(tensor)

    def place(self, dense: torch.Tensor) -> Place:
        return Place(dense.data_ptr(), dense.numel() * dense.element_size(), dense.numel(), dtype_of(dense),
                     tuple(dense.shape), dense)

    def empty(self, shape, like: torch.Tensor) -> torch.Tensor:
        return torch.empty(shape, dtype=like.dtype, device="cpu")

    def copy(self, source, target) -> None:
        target.detach().copy_(source)

    def result(self, dense, like):
        return dense if like.device.type == "cpu" else dense.to(like.device)

    def scaled(self, dense, factor):
        return torch.from_numpy(ARRAYS.scaled(dense.numpy(), factor))

    def widened(self, dense):
        return torch.from_numpy(ARRAYS.widened(dense.numpy()))

    def divide(self, sums, divisor, dense) -> None:
        ARRAYS.divide(sums.numpy(), divisor, dense.numpy())


TENSORS = Tensors()
