"""Peers whose ranks are started one by one: gloo, with torch around it and without, and oneCCL."""

import cluster as testbed

from .contestant import HERE, Contestant, compiled, python_of


class Ranks(Contestant):
    """Ranks that are started one by one and find one another through the environment."""

    def words(self, _folder):
        """What follows the board and the size."""
        return []

    def start(self, ring, scenario, board, most):
        host = ring.nodes[0].address.split(":")[0]
        meeting = ring.folder / f"{self.name}-meets"
        started = []
        for rank in range(scenario.ranks):
            node, local = ring.nodes[rank // scenario.per_node], rank % scenario.per_node
            environment = {"RANK": str(rank), "WORLD_SIZE": str(scenario.ranks), "LOCAL_RANK": str(local),
                           "LOCAL_WORLD_SIZE": str(scenario.per_node), "MASTER_ADDR": host, "MASTER_PORT": "29500",
                           "GLOO_SOCKET_IFNAME": "eth0", **self.variables(local, scenario.per_node)}
            started.append(self.spawn(ring, f"rank{rank}", [*self.command, board, most, *self.words(meeting)],
                                      environment, node))
        return started

    def variables(self, _local_rank, _local_size):
        return {}


class TorchGloo(Ranks):
    PACKAGES = ("torch==2.13.0", "numpy")

    def __init__(self):
        super().__init__("torch-gloo", "torch.distributed, backend gloo, one thread a rank")

    def prepare(self, context):
        self.command = [python_of(context, "torch", *self.PACKAGES), HERE / "ranks/torch_gloo.py", context.library]

    def version(self, _context):
        return "torch " + testbed.run(self.command[0], "-c", "import torch; print(torch.__version__)", seconds=60).strip()


class OwnGloo(Ranks):
    def __init__(self, name, explains, algorithm):
        super().__init__(name, explains, quick=False)
        self._algorithm = algorithm

    def prepare(self, context):
        bench = compiled(context, "bench.o", ["cc"], ["bench.c"], "-c")
        self.command = [compiled(context, "gloo-rank", ["c++"], ["gloo.cc"], "-std=c++17", "-Wno-unused-parameter", bench,
                                 "-lgloo", "-lpthread")]

    def version(self, _context):
        return testbed.run("dpkg-query", "-W", "-f", "libgloo0 ${Version}", "libgloo0").strip()

    def words(self, folder):
        folder.mkdir(exist_ok=True)
        return [self._algorithm, folder]


class OneCcl(Ranks):
    PACKAGES = ("oneccl==2021.14.0", "oneccl-devel==2021.14.0")

    def __init__(self):
        super().__init__("oneccl", "Intel's oneCCL on the processor, over libfabric's tcp", quick=False)
        self._folder = None

    def prepare(self, context):
        self._folder = python_of(context, "oneccl", *self.PACKAGES).parent.parent
        bench = compiled(context, "bench.o", ["cc"], ["bench.c"], "-c")
        lib = self._folder / "lib"
        self.command = [compiled(context, "ccl-rank", ["c++"], ["ccl.cc"], "-std=c++17", f"-I{self._folder / 'include'}",
                                 bench, f"-L{lib}", f"-Wl,-rpath,{lib},--allow-shlib-undefined", "-lccl", "-lpthread")]

    def version(self, _context):
        return " ".join(self.PACKAGES[:1])

    def words(self, folder):
        return [folder]

    def variables(self, local_rank, local_size):
        return {"CCL_ROOT": str(self._folder), "I_MPI_ROOT": str(self._folder), "CCL_ATL_TRANSPORT": "ofi", "CCL_PROCESS_LAUNCHER": "none",
                "CCL_LOCAL_RANK": str(local_rank), "CCL_LOCAL_SIZE": str(local_size), "FI_PROVIDER": "tcp",
                "FI_TCP_IFACE": "eth0", "CCL_KVS_IFACE": "eth0", "CCL_WORKER_COUNT": "1", "CCL_LOG_LEVEL": "error",
                "LD_LIBRARY_PATH": str(self._folder / "lib")}
