"""Adaptive summation (Maleki and others, MLSys 2021), as <gradring/adasum.hpp> has it.

Gradients a and b become (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b: of ranks 0 and 1, 2 and 3, ..., then of the
results, as in a tournament. All products follow from those of the ranks' own vectors, so it is one alltoall, a small
sum and one allgather.
"""

from __future__ import annotations

import numpy as np

from . import exchange
from ._native import Cause, Code, Dtype
from .arrays import ARRAYS, as_array
from .errors import GradringError
from .process_sets import ProcessSet, checked
from .reduce_ops import Sum


def allreduce_adasum(frontend, tensors, outputs, *, name, prescale, postscale, process_set: ProcessSet):
    """As exchange.allreduce. Raises TypeError for anything but float16, float32 and float64."""
    names = checked(process_set).names()
    full = names.check(name, "adasum")
    homes = [exchange.Home(frontend, tensor, outputs[i] if outputs is not None else None) for i, tensor in enumerate(tensors)]
    vectors = []
    for home in homes:
        if (dtype := home.given.dtype) not in (Dtype.FLOAT16, Dtype.FLOAT32, Dtype.FLOAT64):  # NumPy may not know it
            raise TypeError(f"gradring: Adasum of {Dtype(dtype).name.lower()}; it takes float16, float32 and float64")
        array = as_array(home.source)
        vectors.append(array.reshape(-1) * array.dtype.type(prescale))
    full = full or names.automatic("adasum")

    def work():
        results = []
        for i, (vector, home) in enumerate(zip(vectors, homes, strict=True)):
            combined = _combine(vector, exchange.numbered(full, i, len(vectors)), process_set) * vector.dtype.type(postscale)
            as_array(home.dense)[...] = combined.reshape(tuple(home.dense.shape))
            results.append(home.bring())
        return results
    return exchange.staged(names, full, work, False)


def _combine(vector, name, process_set):
    size = process_set.size()
    block = max(-(-vector.size // size), 1)
    padded = np.zeros(block * size, vector.dtype)
    padded[:vector.size] = vector
    how = {"process_set": process_set, "now": True}
    # My part of everybody's vector, one row a rank.
    parts = exchange.alltoall(ARRAYS, padded.reshape(size, block), [1] * size, name=f"{name}/parts", **how).wait()[0]
    wide = parts.astype(np.float64)
    products = exchange.allreduce(ARRAYS, [wide @ wide.T], op=Sum, name=f"{name}/products",
                                  process_set=process_set).wait()[0]
    mine = (weights(products) @ wide).astype(vector.dtype)
    result = exchange.allgather(ARRAYS, [mine], name=f"{name}/result", **how).wait()[0]
    if result.size != padded.size:
        raise GradringError(f"gradring: ranks of {name} were lost meanwhile: {result.size // block} are left of {size}; "
                            "sum again", Code.FAILED, Cause.MISMATCH)
    return result[:vector.size]


def weights(products: np.ndarray) -> np.ndarray:
    """By how much each rank's vector counts. `products`: n x n, of the ranks' vectors with one another."""
    count = np.ones(len(products))
    team = np.arange(len(products))  # of each rank, at this level
    while len(products) > 1:
        n = len(products)
        factors = np.ones(n)
        for i in range(0, n - 1, 2):
            both = products[i, i + 1]
            for one in (i, i + 1):
                factors[one] = 1 - both / (2 * products[one, one]) if products[one, one] > 0 else 1.0
        count *= factors[team]
        team //= 2
        scaled = factors[:, None] * products * factors
        starts = np.arange(0, n, 2)
        products = np.add.reduceat(np.add.reduceat(scaled, starts, axis=0), starts, axis=1)
    return count
