"""Peers whose ranks are started one by one: gloo, with torch around it and without."""

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
                           "GLOO_SOCKET_IFNAME": "eth0"}
            started.append(self.spawn(ring, f"rank{rank}", [*self.command, board, most, *self.words(meeting)],
                                      environment, node))
        return started


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
