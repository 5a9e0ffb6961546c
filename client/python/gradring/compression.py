"""What `compression=` takes, whatever the framework."""

from __future__ import annotations

from typing import Any


class Compressor:
    """Makes tensors smaller while they are exchanged. A class of one's own has these two functions."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """What is exchanged instead of the tensor, and what decompress needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        """The exchanged tensor, of the type that was given to compress."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, context):
        return tensor
