"""Gradients in fewer bits while they are exchanged."""

from __future__ import annotations

from typing import Sequence

import torch

from .._native import Wire
from ..compression import Compressor, NoneCompressor, checked


class _Narrow(Compressor):
    """As what float32 travels between nodes is `wire`: it is summed as it is, and rounded only where it leaves a node.
    Other floating point numbers are cast."""

    dtype: torch.dtype
    wire: Wire

    @classmethod
    def compress(cls, tensor):
        return (tensor.to(cls.dtype) if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor, context):
        return tensor.to(context)


class _FP16(_Narrow):
    dtype = torch.float16
    wire = Wire.FLOAT16


class _BF16(_Narrow):
    dtype = torch.bfloat16
    wire = Wire.BFLOAT16


class Compression:
    """`none`, the default; `fp16` and `bf16`: floating point numbers in 16 bits."""

    none = NoneCompressor
    fp16 = _FP16
    bf16 = _BF16


class Packed:
    """Tensors as they are exchanged with one another.

    Attributes:
        tensors: what to exchange.
        wire: as what it travels.
    """

    def __init__(self, compression, tensors: Sequence[torch.Tensor]):
        self._compression = checked(compression)
        self._contexts: list | None = None
        self.tensors = list(tensors)
        self.wire = getattr(compression, "wire", Wire.DEFAULT)
        if self.wire == Wire.DEFAULT or any(one.dtype != torch.float32 for one in self.tensors):
            self.wire = Wire.DEFAULT
            pairs = [compression.compress(one) for one in self.tensors]
            self.tensors, self._contexts = [one for one, _ in pairs], [context for _, context in pairs]

    def unpacked(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The exchanged tensors, of the types that were given."""
        if self._contexts is None:
            return list(results)
        return [self._compression.decompress(one, context)
                for one, context in zip(results, self._contexts, strict=True)]
