"""Tapes whose gradients are those of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..process_sets import ProcessSet, global_process_set
from ..reduce_ops import Average
from .compression import Compression
from .gradients import Reduction, groups_of, key_of


class _Distributed:
    """Of a class that is made for a user's tape, next to that tape's own class."""

    _reduction: Reduction
    _local: list

    def register_local_source(self, source) -> None:
        """Its gradients are not exchanged."""
        self._local.append(source)

    def gradient(self, target, sources, output_gradients=None, use_generic_names: bool = False,
                 unconnected_gradients=tf.UnconnectedGradients.NONE):
        """As of tf.GradientTape, reduced over all ranks. `use_generic_names`: not those of this graph, for ranks whose
        models have other names."""
        if not isinstance(use_generic_names, bool):  # tf.GradientTape has this in its place
            use_generic_names, unconnected_gradients = False, use_generic_names
        gradients = super().gradient(target, sources, output_gradients, unconnected_gradients)
        reduced = self._reduction(tf.nest.flatten(gradients, expand_composites=False), tf.nest.flatten(sources),
                                  self._local, name="grad" if use_generic_names else None)
        return tf.nest.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(self, target, sources, output_gradients=None, use_generic_names: bool = False):
        """Two lists of (source, gradient): of local sources, and of all others. `sources`: a list."""
        pairs = list(zip(sources, self.gradient(target, sources, output_gradients, use_generic_names), strict=True))
        mine = {key_of(one) for one in self._local}
        return ([pair for pair in pairs if key_of(pair[0]) in mine],
                [pair for pair in pairs if key_of(pair[0]) not in mine])


def DistributedGradientTape(gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "",
                            compression=Compression.none, sparse_as_dense: bool = False, op=Average,
                            gradient_predivide_factor: float = 1.0, num_groups: int = 0,
                            groups: int | list | None = None, process_set: ProcessSet = global_process_set,
                            scale_local_gradients: bool = True) -> Any:
    """A tape of the same class, with what `gradtape` has recorded, whose gradient() exchanges them.

    Args:
        compression: what is exchanged instead, such as Compression.fp16.
        sparse_as_dense: tf.IndexedSlices are made dense before, instead of being gathered.
        op: Average, Sum, Min, Max, Product or Adasum.
        gradient_predivide_factor: an average divides by this before it sums, and by the rest of size() after.
        groups: gradients that are handed over together: lists of variables, or the number of equal parts; None: all.
        process_set: the ranks that exchange; others keep what they have.
        scale_local_gradients: those of register_local_source() are divided by the number of ranks.
    """
    if isinstance(gradtape, _Distributed):
        raise ValueError("gradring: this tape is distributed already")
    reduction = Reduction("DistributedGradientTape", device_dense, device_sparse, compression, sparse_as_dense, op,
                          gradient_predivide_factor, groups_of(num_groups, groups), process_set, scale_local_gradients)
    tape = object.__new__(type(type(gradtape).__name__, (_Distributed, type(gradtape)), {}))
    tape.__dict__.update(gradtape.__dict__)
    tape._reduction = reduction
    tape._local = []
    return tape


def PartialDistributedGradientTape(gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "",
                                   compression=Compression.none, sparse_as_dense: bool = False, op=Average,
                                   gradient_predivide_factor: float = 1.0, num_groups: int = 0,
                                   groups: int | list | None = None, process_set: ProcessSet = global_process_set,
                                   local_layers=None, scale_local_gradients: bool = True) -> Any:
    """DistributedGradientTape which does not exchange the gradients of `local_layers`: a Keras layer, or several."""
    tape = DistributedGradientTape(gradtape, device_dense, device_sparse, compression, sparse_as_dense, op,
                                   gradient_predivide_factor, num_groups, groups, process_set, scale_local_gradients)
    for variable in local_variables(local_layers):
        tape.register_local_source(variable)
    return tape


def local_variables(layers) -> list:
    """The trainable variables of a layer, of several, or of none."""
    import keras

    layers = [] if layers is None else [layers] if isinstance(layers, keras.layers.Layer) else list(layers)
    for one in layers:
        if not isinstance(one, keras.layers.Layer):
            raise ValueError(f"gradring: local_layers has a {type(one).__name__}; it takes layers of Keras")
    return [variable for layer in layers for variable in layer.trainable_weights]
