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


def checked(compression: Any) -> Any:
    """Raises TypeError for what is none, such as its name."""
    if not hasattr(compression, "compress") or not hasattr(compression, "decompress"):
        raise TypeError(f"gradring: compression={compression!r}; it takes one of Compression, such as Compression.fp16, or a class "
                        "of one's own with compress and decompress")
    return compression


class NoneCompressor(Compressor):
    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, context):
        return tensor
