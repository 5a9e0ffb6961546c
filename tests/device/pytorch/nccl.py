"""Whether NCCL runs two ranks on one GPU, which it does not before 2.30."""

import functools
from dataclasses import dataclass

from rings import HOST, Failed, Rings, ended

PAIR = ("NCCL_MULTI_RANK_GPU_ENABLE=1",)
SOCKETS = (*PAIR, "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_IB_DISABLE=1")
SECONDS = 100


@dataclass(frozen=True)
class Nccl:
    environment: tuple  # of ranks that use it
    pairs: bool = False
    why: str = ""  # it does not


@functools.cache
def ask(setting, environment):
    """Whether they can be joined with these variables. Asked once each."""
    return probe(setting, environment) if setting.device == "cuda" else Nccl(environment, why="it is for GPUs")


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
    """measure(nccl); without NCCL if that does not end well, as kernels of two ranks that wait for one another may on one GPU."""
    try:
        return measure(nccl)
    except Failed as error:
        if not nccl.pairs:
            raise
        print(f"with NCCL it did not end well, and is tried without: {error}")
        return measure(Nccl(nccl.environment, why="with it the measurement did not end well"))
