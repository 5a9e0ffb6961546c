"""The exchange of gradients, for each backend of Keras."""

from __future__ import annotations

from typing import Any

import keras

from ..compression import Compressor, NoneCompressor

BACKEND = keras.backend.backend()


class _Half(Compressor):
    @staticmethod
    def compress(tensor):
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        return keras.ops.cast(tensor, "float16") if "float" in dtype else tensor, dtype

    @staticmethod
    def decompress(tensor, context):
        return keras.ops.cast(tensor, context)


class _Compression:
    none = NoneCompressor
    fp16 = _Half


if BACKEND == "tensorflow":
    import tensorflow

    from ..tensorflow.compression import Compression
    from ..tensorflow.gradients import Reduction, key_of

    def is_sparse(gradient: Any) -> bool:
        return isinstance(gradient, tensorflow.IndexedSlices)

    def as_dense(gradient: Any) -> Any:
        return tensorflow.convert_to_tensor(gradient)

    def reduction(*settings: Any) -> Any:
        return Reduction(*settings)
else:
    from .array_reduction import ArrayReduction, as_dense, is_sparse, key_of

    Compression = _Compression

    def reduction(*settings: Any) -> Any:
        return ArrayReduction(*settings)
