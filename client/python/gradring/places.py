"""Where a framework's tensors lie, as the native library wants to know it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from ._native import Dtype

FLOATS = frozenset({Dtype.FLOAT32, Dtype.FLOAT64, Dtype.FLOAT16, Dtype.BFLOAT16})


@dataclass(frozen=True, slots=True)
class Place:
    """A dense tensor: what an op reads or writes. Keeps the memory alive."""

    address: int
    nbytes: int
    count: int
    dtype: Dtype
    shape: tuple[int, ...]
    owner: Any = field(repr=False)


class Frontend(Protocol):
    """What one framework's tensors have to offer. All of it may be called from any thread."""

    def dense(self, tensor: Any, writable: bool = False) -> Any:
        """The tensor itself if it is dense and on the host, else such a copy. Raises TypeError for what is no tensor."""

    def place(self, dense: Any) -> Place:
        """Raises TypeError for types that gradring does not know."""

    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        """A new dense tensor of the host with anything in it."""

    def copy(self, source: Any, target: Any) -> None:
        """Of equal shapes."""

    def result(self, dense: Any, like: Any) -> Any:
        """What the caller is given of a new tensor: where `like` is."""

    def scaled(self, dense: Any, factor: float) -> Any:
        """A new tensor of integers, rounded towards 0."""

    def widened(self, dense: Any) -> Any:
        """Of integers of fewer than 64 bits: a new tensor of the same numbers in as many."""

    def divide(self, sums: Any, divisor: int, dense: Any) -> None:
        """Integers of 64 bits, rounded towards 0, into `dense`, which may be `sums`."""
