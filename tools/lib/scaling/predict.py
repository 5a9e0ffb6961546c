"""Everything that is asked of gradring-scale."""

import json
import subprocess
from pathlib import Path

MIB, GIB = 1 << 20, 1 << 30
HOROVOD_NODES = (32, 128)
HOROVOD_SWEEP = (2, 4, 8, 16, 32, 64, 128, 256, 512)
NODES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
# Without the hierarchy a node's engine hears of eight times as many members. More take hours to compute.
NODES_FLAT = (2, 4, 8, 16, 32, 64, 128, 256, 512)
# What Horovod published for 128 servers, and before that for 32: percent, by model.
PUBLISHED = {128: {"Inception V3": 90, "ResNet-101": 90, "VGG-16": 68}, 32: {"Inception V3": 90, "ResNet-101": 90, "VGG-16": 79}}
DECODER = "decoder of 7 G parameters"


class Program:
    def __init__(self, path, say):
        self._path = path
        self._say = say

    def __call__(self, command, *words):
        words = [str(word) for word in words]
        self._say(f"gradring-scale {command} {' '.join(words)}")
        done = subprocess.run([self._path, command, *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"scaling: {done.stderr.strip()}")
        return [json.loads(line) for line in done.stdout.splitlines()]


def horovod(program):
    """Steps of the three models on Horovod's servers."""
    found = []
    for model in PUBLISHED[128]:
        words = ("--machine", "servers-25g", "--model", model)
        found += program("train", *words, "--wire", "native", "bf16", "--nodes", *HOROVOD_SWEEP)
        found += program("train", *words, "--flat", "--nodes", *[nodes for nodes in HOROVOD_SWEEP if nodes <= 128])
        found += program("train", *words, "--flat", "--wire", "bf16", "--nodes", *HOROVOD_NODES)
    return found


def horovod_exact(program):
    """The same with an engine for every node: nodes fall out of step, which one that stands for all cannot. Takes minutes."""
    found = []
    for model in PUBLISHED[128]:
        found += program("train", "--machine", "servers-25g", "--model", model, "--wire", "native", "bf16", "--nodes", *HOROVOD_NODES,
                         "--exact", "--steps", 1)
    return found


# What of the daemon, or around it, is changed: what it says, and the fields.
CHANGES = (
    ("as it is", ()),
    ("gradients are made in the daemon's memory: no copies over PCIe", ("device_gbs=0",)),
    ("its thread copies and sums as fast as all memory allows", ("thread_gbs=60",)),
    ("both", ("device_gbs=0", "thread_gbs=60")),
    ("both, and 100 Gbit/s", ("device_gbs=0", "thread_gbs=60", "lane_gbit=100")),
)


def limits(program):
    """What VGG-16 would gain by this and that."""
    found = []
    for says, fields in CHANGES:
        words = ["--model", "VGG-16", "--nodes", 128, "--wire", "native", "bf16"]
        for line in program("train", *words, *(["--set", *fields] if fields else [])):
            found.append({"says": says, **line})
    return found


def today(program):
    """Allreduce and a step of the decoder on nodes of 8 x 400 Gbit/s."""
    sums, steps = [], []
    for machine in ("nodes-8x400-host", "nodes-8x400-gpu"):
        words = ("--machine", machine, "--bytes", 64 * MIB, GIB, "--steps", 1)
        sums += program("allreduce", *words, "--wire", "native", "bf16", "--nodes", *NODES)
        sums += program("allreduce", *words, "--flat", "--nodes", *NODES_FLAT)
        steps += program("train", "--machine", machine, "--model", DECODER, "--bucket", GIB, "--steps", 1, "--wire", "native",
                         "bf16", "--nodes", *NODES)
    return sums, steps


def all_of(path: Path, say):
    program = Program(path, say)
    sums, steps = today(program)
    return {"check": program("check"), "horovod": horovod(program), "horovod_exact": horovod_exact(program),
            "limits": limits(program), "sums": sums, "steps": steps}
