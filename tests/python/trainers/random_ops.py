"""Random ops on tensors of libraries, in random sets of ranks; results are beside NumPy's. STORE SEED STEPS LIBRARY...

All ranks draw the same numbers, so that each knows what the others have.
"""

import importlib
import os
import random
import sys
from dataclasses import dataclass, field

import numpy as np
from report import say

SEED, STEPS = int(sys.argv[2]), int(sys.argv[3])
os.environ |= {"JAX_ENABLE_X64": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}

import gradring  # noqa: E402  (JAX asks when it is imported)

sets = [gradring.ProcessSet(ranks) for ranks in ([0, 1], [1, 2], [0, 3], [1, 2, 3])]
gradring.init(process_sets=sets)
rank, size = gradring.rank(), gradring.size()
REDUCE = {gradring.Sum: lambda all: sum(all[1:], all[0]), gradring.Average: lambda all: sum(all[1:], all[0]) / len(all),
          gradring.Min: np.minimum.reduce, gradring.Max: np.maximum.reduce, gradring.Product: np.multiply.reduce}


class Numpy:
    ops = gradring
    dtypes = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
    in_place = True

    def given(self, array, dtype, how):
        array = array.astype(dtype)
        if how == "other order":
            return np.asarray(array, array.dtype.newbyteorder())
        if how == "every second" and array.ndim:
            return np.repeat(array, 2, axis=0)[::2]
        if how == "backwards" and array.ndim:
            return array[::-1].copy()[::-1]
        if how == "columns first" and array.ndim:
            return np.asfortranarray(array)
        if how == "shared":
            shared = gradring.empty(array.shape, array.dtype)
            shared[...] = array
            return shared
        return array.copy()

    def numbers(self, tensor):
        return np.asarray(tensor)

    def splits(self, splits):
        return splits


class Torch(Numpy):
    dtypes = ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"]

    def __init__(self):
        self.torch, self.ops = importlib.import_module("torch"), importlib.import_module("gradring.torch")

    def given(self, array, dtype, how):
        tensor = self.torch.tensor(array).to(getattr(self.torch, dtype))
        if how == "every second" and array.ndim:
            return tensor.repeat_interleave(2, 0)[::2]
        if how == "columns first" and array.ndim > 1:
            return tensor.transpose(0, 1).contiguous().transpose(0, 1)
        return tensor

    def numbers(self, tensor):
        return (tensor.double() if tensor.is_floating_point() else tensor).numpy()

    def splits(self, splits):
        return self.torch.tensor(splits)


class TensorFlow(Numpy):
    dtypes = Torch.dtypes
    in_place = False

    def __init__(self):
        self.tf, self.ops = importlib.import_module("tensorflow"), importlib.import_module("gradring.tensorflow")

    def given(self, array, dtype, how):
        return self.tf.cast(self.tf.constant(array), dtype)

    def numbers(self, tensor):
        return self.tf.cast(tensor, "float64").numpy()


class Jax(TensorFlow):
    def __init__(self):
        self.jnp, self.ops = importlib.import_module("jax.numpy"), importlib.import_module("gradring.jax")

    def given(self, array, dtype, how):
        return self.jnp.asarray(array, dtype=dtype)

    def numbers(self, tensor):
        return np.asarray(tensor.astype("float64"))


@dataclass
class Step:
    """What is drawn for it. What a rank has is `of(rank)`, or `of(rank, shape)`."""

    number: int
    library: Numpy
    draw: random.Random
    details: dict = field(default_factory=dict)

    def __post_init__(self):
        self.dtype = self.draw.choice(self.library.dtypes)
        self.shape = tuple(self.draw.choice([0, 1, 2, 3, 5]) for _ in range(self.draw.choice([0, 1, 1, 2, 3])))
        if self.shape and self.draw.random() < 0.05:
            self.shape = (70_000,)
        self.op = self.draw.choice([op for op in REDUCE if not (op == gradring.Average and self.dtype == "bool")])
        self.factor = self.draw.choice([1, 2]) if self.op in (gradring.Sum, gradring.Average) and self.dtype != "bool" else 1
        self.how = self.draw.choice(["", "other order", "every second", "backwards", "columns first", "shared"])
        self.process_set = self.draw.choice([gradring.global_process_set, *sets])
        self.members = [one for one in range(size) if self.process_set is gradring.global_process_set or one in self.process_set.ranks]
        self.root = self.draw.choice(self.members)
        self.rows = [[self.draw.randrange(4) for _ in range(size)] for _ in range(size)]
        self.details = {"name": self.draw.choice([None, f"step {self.number}"]), "process_set": self.process_set}

    def of(self, whose, shape=None):
        low, high = {"b": (0, 2), "u": (0, 4)}.get(self.dtype[0], (-4, 5))
        numbers = np.random.default_rng([SEED, self.number, whose]).integers(low, high, self.shape if shape is None else shape)
        return numbers.astype(bool) if self.dtype == "bool" else numbers

    def mine(self, shape=None):
        return self.library.given(self.of(rank, shape), self.dtype, self.how)

    def reduced(self, factor=1):
        inputs = [factor * self.of(one).astype("float64") for one in self.members]
        if self.dtype == "bool":
            return np.minimum(REDUCE[self.op](inputs), 1)
        wide = REDUCE[self.op](inputs)
        if self.dtype[0] not in "iu":
            return wide
        return np.trunc(wide).astype("int64").astype(self.dtype)  # which may overflow

    def check(self, got, wanted):
        got = self.library.numbers(got).astype("float64")
        about = 0.02 if self.dtype in ("float16", "bfloat16") else 1e-5
        assert got.shape == np.shape(wanted) and np.allclose(got, np.asarray(wanted, "float64"), about, about), (vars(self), got, wanted)


def allreduce(step):
    given = step.mine()
    before = step.library.numbers(given).copy()
    got = step.library.ops.allreduce(given, op=step.op, prescale_factor=float(step.factor), **step.details)
    step.check(got, step.reduced(step.factor))
    step.check(given, before)


def allreduce_in_place(step):
    given = step.mine()
    if step.library.ops is gradring:
        assert gradring.allreduce(given, out=given, op=step.op, **step.details) is given
    else:
        step.library.ops.allreduce_(given, op=step.op, **step.details)
    step.check(given, step.reduced())


def grouped_allreduce(step):
    for got in step.library.ops.grouped_allreduce([step.mine() for _ in range(3)], op=step.op, **step.details):
        step.check(got, step.reduced())


def broadcast(step):
    step.check(step.library.ops.broadcast(step.mine(), step.root, **step.details), step.of(step.root))


def allgather(step):
    def shape(whose):
        return step.rows[0][whose], *step.shape[1:]

    got = step.library.ops.allgather(step.mine(shape(rank)), **step.details)
    step.check(got, np.concatenate([step.of(one, shape(one)) for one in step.members]))


def alltoall(step):
    splits = {one: step.rows[one][:len(step.members)] for one in step.members}
    place = step.members.index(rank)
    parts = [np.split(step.of(one, (sum(mine), *step.shape[1:])), np.cumsum(mine)[:-1])[place] for one, mine in splits.items()]
    got, received = step.library.ops.alltoall(step.mine((sum(splits[rank]), *step.shape[1:])), step.library.splits(splits[rank]),
                                              **step.details)
    step.check(got, np.concatenate(parts))
    assert [int(one) for one in received] == [splits[one][place] for one in step.members]


def reducescatter(step):
    if not step.shape or step.op not in (gradring.Sum, gradring.Average):
        return
    got = step.library.ops.reducescatter(step.mine(), op=step.op, **step.details)
    step.check(got, np.array_split(step.reduced(), len(step.members))[step.members.index(rank)])


OPS = [allreduce, grouped_allreduce, broadcast, allgather, alltoall, reducescatter]
for library in [{"numpy": Numpy, "torch": Torch, "tensorflow": TensorFlow, "jax": Jax}[name]() for name in sys.argv[4:]]:
    draw = random.Random(SEED)
    for number in range(STEPS):
        do = draw.choice([*OPS, *[allreduce_in_place] * library.in_place])
        step = Step(number, library, draw)
        if rank in step.members:
            do(step)
say(steps=STEPS)
