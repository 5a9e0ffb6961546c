"""The daemons of a part, and the jobs that a part runs on them."""

import contextlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools/lib"))

import cluster as testbed  # noqa: E402  (found by the line above)

HERE = Path(__file__).resolve().parent
SUMS, HOST, NODES_SUMS, NODES_HOST = "sums", "host", "two nodes, sums", "two nodes, host"
# Nodes, and whether their daemons sum on GPUs. Nodes are ports of this machine.
RINGS = {SUMS: (1, True), HOST: (1, False), NODES_SUMS: (2, True), NODES_HOST: (2, False)}
# More than enough for the largest op, so that none goes by way of the host for want of room.
STAGE_MIB = 2048
# By default half of the machine's memory, which may grow with what is used of it.
SEGMENTS = "64G"
# As many of the GPU's queues as CUDA has. With 8 of them, which is the default, a stream that waits for an op may be before
# another that the op needs, in the same queue.
QUEUES = 32


class Failed(Exception):
    """Something that has to hold does not."""


@dataclass(frozen=True)
class Setting:
    """What the command line says."""

    programs: Path
    device: str
    quick: bool
    nccl: str | None = None  # another libnccl than the one PyTorch has
    picture: str | None = None


class Rings:
    """Rings by name, as a context."""

    def __init__(self, setting, names):
        self._setting = setting
        self._names = names
        self._stack = contextlib.ExitStack()
        self._jobs = 0

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self._rings = {}
            for name in self._names:
                nodes, sums = RINGS[name]
                settings = {"segment-limit": SEGMENTS, **({"gpu-sums": "on"} if sums else {})}
                ring = testbed.Cluster(self._setting.programs, nodes, network=testbed.Loopback, settings=settings)
                self._rings[name] = stack.enter_context(ring).start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            for name, ring in self._rings.items():
                for node in ring.nodes:
                    print(f"{name}, {node.name}: gradringd's log ends:\n{node.log()}")
        complaints = [said for ring in self._rings.values() for said in ring.close()]
        self._stack.close()
        if complaints and kind is None:
            raise Failed("\n".join(complaints))

    @property
    def folder(self):
        return self._rings[self._names[0]].folder

    def runtime_dirs(self, name):
        """By rank, of two."""
        nodes = self._rings[name].nodes
        return [str(nodes[0].runtime_dir), str(nodes[-1].runtime_dir)]

    def launch(self, script, told, ranks=2, ring=None, environment=()):
        """A job of ranks/SCRIPT, which is told `told`, on the nodes of a ring. The Job."""
        told = {"store": self._store(), "device": self._setting.device, **told}
        return self.start(HERE / "ranks" / f"{script}.py", [json.dumps(told)], ranks, ring, environment)

    def run_trainer(self, script, *words, ranks=2, ring=None):
        """One of tests/python/trainers."""
        return self.start(ROOT / "tests/python/trainers" / f"{script}.py", [self._store(), *words], ranks, ring)

    def start(self, path, words, ranks, ring=None, environment=()):
        ring = self._rings[ring or self._names[0]]
        command = ["/usr/bin/env", *self._environment(), *environment, sys.executable, path, *words]
        return ring.launch(f"{path.stem}-{self._jobs}", command, per_node=ranks // min(len(ring.nodes), ranks))

    def _store(self):
        self._jobs += 1
        return str(self.folder / f"store-{self._jobs}")

    def tell_sums(self, name):
        """What the daemons of a ring summed on the GPU; on one, it must be something."""
        for node in self._rings[name].nodes:
            counted = node.ask("status")["counters"]
            print(f"gradringd, {name}, {node.name}: {counted['gpu_input_bytes']} bytes of ranks were summed on the GPU")
            if self._setting.device == "cuda" and not counted["gpu_input_bytes"]:
                raise Failed(f"gradringd of {node.name} has gpu-sums and summed nothing on the GPU; its log ends:\n{node.log()}")

    def _environment(self):
        words = ["GLOO_SOCKET_IFNAME=lo", "NCCL_SOCKET_IFNAME=lo", "PYTHONWARNINGS=ignore", "TORCH_CPP_LOG_LEVEL=ERROR",
                 "PYTHONDONTWRITEBYTECODE=1", "PYTHONFAULTHANDLER=1", "CUBLAS_WORKSPACE_CONFIG=:4096:8",
                 f"GRADRING_GPU_STAGE_MIB={STAGE_MIB}", f"CUDA_DEVICE_MAX_CONNECTIONS={QUEUES}"]
        if self._setting.device == "cpu":
            words.append("OMP_NUM_THREADS=1")  # ranks share the processors
        if self._setting.nccl:
            words.append(f"LD_PRELOAD={self._setting.nccl}")
        return words


def reports(trainer):
    return [json.loads(line) for line in trainer.says().splitlines() if line.startswith("{")]


def ended(job, seconds):
    """Waits for a job's end; all must end well. What each rank reported, by rank."""
    try:
        statuses = job.wait(seconds)
    except testbed.TookTooLong as error:
        raise Failed(f"{error}\n{_last_words(job)}") from None
    if statuses != [0] * len(job):
        raise Failed(_last_words(job))
    return [reports(one) for one in job]


def _last_words(job):
    return "\n".join(f"{one.name}: status {one.status}: {one.says()[-400:]}{one.complains()[-2000:]}" for one in job
                     if one.status != 0)
