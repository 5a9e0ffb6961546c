"""The collectives on arrays and pytrees of arrays, inside jax.jit and outside of it.

Of a pytree all leaves are handed over at once, and all ranks have trees of the same structure. Results are jax.Arrays
in a tree of the same kind. Inside jax.jit the ops run in the order of the program (ordered io_callbacks), with copies
of the arrays in host memory; there a failed op is a jax.errors.JaxRuntimeError, whose text ends with that of the
GradringError. Elsewhere it is the GradringError. ValueError and TypeError are for arguments that make no sense.

`name`: matches the op with the others' of that name; None: by its place in the program. `process_set`: the ranks that
take part, which all must call it. Outside of jit all functions may be called from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from .. import exchange
from .._native import Wire
from ..arrays import ARRAYS
from ..process_sets import ProcessSet, global_process_set
from ..reduce_ops import Average, Sum
from .host import on_host


def allreduce(tree: Any, op=Average, name: str | None = None, prescale_factor: float = 1.0,
              postscale_factor: float = 1.0, *, wire: Wire | str = Wire.DEFAULT,
              process_set: ProcessSet = global_process_set) -> Any:
    """The arrays of all ranks in one, of the same shape; `op`: Average, Sum, Min, Max, Product or Adasum.

    Can be differentiated for Average and Sum: gradients are reduced as the arrays were.

    Args:
        prescale_factor, postscale_factor: multiply what goes in, and what comes out.
        wire: as what float32 travels between nodes: native, fp16, bf16 or int8.
    """
    leaves, structure = jax.tree.flatten(tree)
    how = _Reduction(op, name, prescale_factor, postscale_factor, wire, process_set)
    return jax.tree.unflatten(structure, _through(how, leaves))


def grouped_allreduce(arrays: Sequence, op=Average, name: str | None = None, prescale_factor: float = 1.0,
                      postscale_factor: float = 1.0, *, wire: Wire | str = Wire.DEFAULT,
                      process_set: ProcessSet = global_process_set) -> list:
    """allreduce of several arrays, as a list."""
    return allreduce(list(arrays), op, name, prescale_factor, postscale_factor, wire=wire, process_set=process_set)


def allgather(tree: Any, name: str | None = None, *, process_set: ProcessSet = global_process_set) -> Any:
    """Of each array, the rows of all ranks, one below the other. Ranks may have different numbers of rows outside of
    jax.jit alone, which has to know the result's shape."""
    size = process_set.size()
    known = []  # beforehand, inside jax.jit

    def run(arrays):
        return exchange.allgather(ARRAYS, arrays, name=name, process_set=process_set, now=True,
                                  as_many=lambda: bool(known)).wait()

    def shape(one):
        known.append(_rows(one, "allgather") * size)
        return known[-1], *one.shape[1:]
    return _of_tree(tree, run, shape)


def broadcast(tree: Any, root_rank: int, name: str | None = None, *,
              process_set: ProcessSet = global_process_set) -> Any:
    """The root's arrays, on all ranks; theirs must have the same shapes and types."""
    process_set.place_of(root_rank)

    def run(arrays):
        handles = [exchange.broadcast(ARRAYS, one, root_rank=root_rank, name=exchange.numbered(name, i, len(arrays)),
                                      process_set=process_set) for i, one in enumerate(arrays)]
        return [handle.wait() for handle in handles]
    return _of_tree(tree, run, lambda one: one.shape)


def reducescatter(tree: Any, op=Average, name: str | None = None, prescale_factor: float = 1.0,
                  postscale_factor: float = 1.0, *, process_set: ProcessSet = global_process_set) -> Any:
    """This rank's rows of each array's Average or Sum; where rows cannot be shared out evenly the first ranks have one
    more."""
    process_set.job()  # has a word for a rank that is not in it
    size, mine = process_set.size(), process_set.rank()

    def run(arrays):
        return exchange.reducescatter(ARRAYS, arrays, op=op, name=name, prescale=prescale_factor,
                                      postscale=postscale_factor, process_set=process_set).wait()

    def shape(one):
        rows = _rows(one, "reducescatter")
        return rows // size + (mine < rows % size), *one.shape[1:]
    return _of_tree(tree, run, shape)


def alltoall(tree: Any, splits: Sequence[int] | None = None, name: str | None = None, *,
             process_set: ProcessSet = global_process_set) -> Any:
    """The rows that the others have for this rank, in the order of ranks. `splits[r]`: how many of its rows are rank
    r's; then the result is (rows, how many each rank had), which jax.jit cannot know beforehand."""
    received: list[int] = []

    def run(arrays):
        results = [exchange.alltoall(ARRAYS, one, splits, name=exchange.numbered(name, i, len(arrays)),
                                     process_set=process_set, now=True).wait() for i, one in enumerate(arrays)]
        received[:] = results[0][1] if results else []
        return [rows for rows, _ in results]

    def shape(one):
        if splits is not None:
            raise ValueError("gradring: alltoall with splits inside jax.jit, which has to know how many rows come "
                             "back: call it outside, or pad the rows to equal numbers")
        _rows(one, "alltoall")
        return one.shape
    result = _of_tree(tree, run, shape)
    return result if splits is None else (result, jnp.asarray(np.asarray(received, np.int32)))


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks have called it; inside jax.jit, the ops that follow it start then."""
    def run(_):
        exchange.barrier(process_set=process_set).wait()
        return []
    on_host(run, [], lambda _: [])


@dataclass(frozen=True)
class _Reduction:
    """How an allreduce is done, apart from what it is given."""

    op: Any
    name: str | None
    prescale: float
    postscale: float
    wire: Wire | str
    process_set: ProcessSet

    def __call__(self, leaves: list) -> list:
        return _on_host(self._run, leaves, lambda one: one.shape)

    def _run(self, arrays):
        return exchange.allreduce(ARRAYS, arrays, op=self.op, name=self.name, prescale=self.prescale,
                                  postscale=self.postscale, wire=self.wire, process_set=self.process_set).wait()


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _reduced(how: _Reduction, leaves: list) -> list:
    return how(leaves)


def _through(how: _Reduction, leaves: list) -> list:
    # Not in vain: what jax.custom_vjp wraps is compiled anew with each call.
    return _reduced(how, leaves) if any(isinstance(one, jax.core.Tracer) for one in leaves) else how(leaves)


def _forward(how, leaves):
    return _through(how, leaves), None  # of which there may be a gradient as well, as of what _backward makes


def _backward(how, _, gradients):
    if how.op not in (Average, Sum):
        raise NotImplementedError(f"gradring: the gradient of an allreduce with {how.op}; there is one for Average and "
                                  "Sum")
    own = replace(how, name=how.name and f"{how.name}.gradient")
    real = [one for one in gradients if one.dtype != jax.dtypes.float0]  # the others are of integers
    reduced = iter(_through(own, real))
    return [next(reduced) if one.dtype != jax.dtypes.float0 else one for one in gradients],


_reduced.defvjp(_forward, _backward)


def _of_tree(tree, run, shape):
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, _on_host(run, leaves, shape))


def _on_host(run, leaves, shape):
    if not leaves:
        return []
    return on_host(run, leaves, lambda known: [jax.ShapeDtypeStruct(shape(one), one.dtype) for one in known])


def _rows(array, what) -> int:
    if not array.shape:
        raise ValueError(f"gradring: {what} of a scalar, which has no rows; give it one dimension")
    return array.shape[0]
