"""Whether NCCL runs two ranks on one GPU, which it does not before 2.30 unless they take it for two."""

import functools
from dataclasses import dataclass

import torch
from rings import HOST, Failed, Rings, ended

FIRST = (2, 30)  # version that does
PAIR = ("NCCL_MULTI_RANK_GPU_ENABLE=1",)
# Each rank is a machine to it (side.py), else it would find another way from one to the other on the same GPU.
SOCKETS = ("NCCL_HOSTID=RANK", "NCCL_IB_DISABLE=1")
SECONDS = 100


@dataclass(frozen=True)
class Nccl:
    environment: tuple  # of ranks that use it
    pairs: bool = False
    why: str = ""  # it does not
    alone: bool = False  # whether one rank alone is measured by it as well


@functools.cache
def ask(setting, environment):
    """Whether they can be joined with these variables. Asked once each, if at all."""
    why = known(setting, environment)
    return Nccl(environment, why=why) if why else probe(setting, environment)


def known(setting, environment):
    """Why it does not, where that is known without ranks that try; else None."""
    if setting.device != "cuda":
        return "it is for GPUs"
    if not torch.distributed.is_nccl_available():
        return "this PyTorch has none"
    version = torch.cuda.nccl.version()
    if environment == PAIR and setting.nccl is None and version[:2] < FIRST:
        return f"NCCL {'.'.join(map(str, version))} takes one rank a GPU"
    return None


def probe(setting, environment):
    with Rings(setting, [HOST]) as rings:
        try:
            said = ended(rings.launch("nccl_pair", {"patience": 60}, environment=environment), SECONDS)
        except Failed as error:
            return Nccl(environment, why=f"it did not end well: {error}")
    words = [one["words"] for rank in said for one in rank]
    version = said[0][0]["version"]
    if any(words):
        return Nccl(environment, why=f"NCCL {version} refuses two ranks on one GPU: {next(filter(None, words))}")
    print(f"NCCL {version} takes two ranks on one GPU with {' '.join(environment)}")
    return Nccl(environment, pairs=True)


def or_without(nccl, measure):
    """measure(nccl); without NCCL if that does not end well, as kernels of two ranks that wait for one another may on one GPU: the
    figures of the others are not to be lost with NCCL's."""
    try:
        return measure(nccl)
    except Failed as error:
        if not nccl.pairs and not nccl.alone:
            raise
        print(f"with NCCL it did not end well, and is tried without: {error}")
        return measure(Nccl(nccl.environment, why="with it the measurement did not end well"))
