"""allreduce of float32, 4 B to 256 MiB: gradring beside Gloo, and beside NCCL where it takes two ranks on one GPU. On one node,
and as two nodes on this machine, where NCCL goes by sockets."""

import statistics

import picture
import torch
from nccl import PAIR, SOCKETS, ask, or_without
from rings import HOST, NODES_HOST, NODES_SUMS, SUMS, Rings, ended, reports
from table import goal, in_bytes, show, spread

OURS, BY_HOST, GLOO, NCCL = "gradring, gpu-sums", "gradring, by the host", "gloo", "NCCL"
SECONDS = 260  # for a job


def sizes(setting):
    return [4, 64 << 10, 3 << 20] if setting.quick else [1 << power for power in (2, 6, 10, 14, 18, 20, 22, 24, 26, 28)]


def measure(what, setting, names, nccl):
    """{size: {way: microseconds of each round}}, by the rings of these names. Tells them, also those until something failed."""
    sums, host = names
    with Rings(setting, names) as rings:
        ways = {OURS: {"backend": "gradring", "runtime_dirs": rings.runtime_dirs(sums)},
                BY_HOST: {"backend": "gradring", "runtime_dirs": rings.runtime_dirs(host)},
                GLOO: {"backend": "gloo"}}
        if nccl.pairs:
            ways[NCCL] = {"backend": "nccl"}
        told = {"ways": ways, "sizes": sizes(setting), "rounds": 2 if setting.quick else 5,
                "budget": (8 if setting.quick else 512) << 20, "most": 3 if setting.quick else 200}
        job = rings.launch("speed", told, environment=nccl.environment if nccl.pairs else ())
        try:
            ended(job, SECONDS)
        finally:
            figures = {one["size"]: one["us"] for one in reports(job[0])}
            if figures:
                tell(what, figures, nccl)
        if sums == SUMS:
            rings.tell_sums(sums)
    return figures


def tell(what, figures, nccl):
    ways = list(next(iter(figures.values())))
    others = [way for way in ways if way not in (OURS, BY_HOST)]
    print(f"\n{what}, allreduce of float32 by two ranks: us an op, median of the rounds (least to most);\n"
          f"how many times as long as {OURS}")
    rows = []
    for size, taken in figures.items():
        middle = {way: statistics.median(taken[way]) for way in ways}
        cells = [in_bytes(size), spread(taken[OURS])]
        for way in ways[1:]:
            cells += [spread(taken[way]), f"{middle[way] / middle[OURS]:.2f}"]
        rows.append(cells)
    show(["", OURS, *(word for way in ways[1:] for word in (way, "times"))], rows)
    for other in others:
        ahead = [in_bytes(size) for size, taken in figures.items()
                 if statistics.median(taken[OURS]) >= statistics.median(taken[other])]
        behind = f"; not at {', '.join(ahead)}" if ahead else ""
        goal(f"ahead of {other} at {len(figures) - len(ahead)} of {len(figures)} sizes{behind}", not ahead)
    if not nccl.pairs:
        print(f"NCCL: left out, {nccl.why}")


def run(setting):
    figures = {}
    where = f"tensors of one {torch.cuda.get_device_name(0)}" if setting.device == "cuda" else "tensors of the host"
    try:
        for what, names, how in (("one node", (SUMS, HOST), PAIR), ("two nodes, over loopback", (NODES_SUMS, NODES_HOST), SOCKETS)):
            figures[what] = or_without(ask(setting, how), lambda nccl, what=what, names=names: measure(what, setting, names, nccl))
    finally:
        if setting.picture and figures:
            print(picture.draw(figures, where, setting.picture))
