"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

import keras
import tensorflow as tf

from ..process_sets import ProcessSet, global_process_set
from ..reduce_ops import Sum
from . import differentiable
from .bridge import name_for


@keras.saving.register_keras_serializable("gradring")  # Keras loads no other classes than its own that are not
class SyncBatchNormalization(keras.layers.BatchNormalization):
    """keras.layers.BatchNormalization, whose mean and variance, in training, are those of all ranks' examples together.
    The ranks may have different numbers of them, and some none."""

    def __init__(self, fused: bool = False, process_set: ProcessSet = global_process_set, **kwargs):
        if fused is not False:
            raise ValueError(f"gradring: SyncBatchNormalization(fused={fused}); there is none that is fused")
        super().__init__(**kwargs)
        self._process_set = process_set

    def _moments(self, inputs, mask):
        mean, variance = super()._moments(inputs, mask)
        if not self._process_set.included():  # how many ranks there are may change after this was traced
            return mean, variance
        if mask is None:
            shape = tf.shape(inputs)
            count = tf.reduce_prod(tf.gather(shape, self._reduction_axes))
        else:
            count = tf.reduce_sum(tf.cast(mask, tf.int32))
        count = tf.cast(count, mean.dtype)
        mean, variance = (tf.where(count > 0, one, tf.zeros_like(one)) for one in (mean, variance))
        # Weighted by their counts, so that ranks with more examples count for more. The mean first: the difference of
        # large squares would not be the variance.
        total = self._sum(tf.stack([mean, tf.ones_like(mean)]) * count)
        common = total[0] / total[1]
        return common, self._sum((variance + tf.square(mean - common)) * count) / total[1]

    def _sum(self, mine):
        return differentiable.allreduce([mine], Sum, 1.0, 1.0, name_for("batch_norm", None), self._process_set)[0]
