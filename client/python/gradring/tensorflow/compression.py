"""Casts around an exchange, so that less is sent."""

from __future__ import annotations

import tensorflow as tf

from ..compression import Compressor, NoneCompressor


class _CastCompressor(Compressor):
    """Floating point numbers travel as `dtype`."""

    dtype: tf.DType

    @classmethod
    def compress(cls, tensor):
        return (tf.cast(tensor, cls.dtype) if tensor.dtype.is_floating else tensor), tensor.dtype

    @classmethod
    def decompress(cls, tensor, context):
        return tf.cast(tensor, context) if context.is_floating else tensor


class FP16Compressor(_CastCompressor):
    dtype = tf.float16


class BF16Compressor(_CastCompressor):
    dtype = tf.bfloat16


class Compression:
    """`none` is the default. GRADRING_WIRE=bf16 halves what travels between nodes as well, and sums in 32 bits."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
