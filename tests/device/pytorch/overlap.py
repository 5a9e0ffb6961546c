"""What the exchange adds to a step of DDP whose backward pass takes longer than it."""

import statistics

from nccl import PAIR, SOCKETS, ask, or_without
from rings import HOST, NODES_HOST, NODES_SUMS, SUMS, Rings, ended, reports
from table import goal, show, spread

OURS, BY_HOST, GLOO, NCCL, ALONE = "gradring, gpu-sums", "gradring, by the host", "gloo", "NCCL", "alone"
MORE_AT_MOST = 1.05  # times computing alone
SECONDS = 260  # for a job


def measure(what, setting, names, nccl):
    """Tells the figures, also those of the rounds until something failed."""
    sums, host = names
    with Rings(setting, names) as rings:
        ways = {OURS: {"backend": "gradring", "runtime_dirs": rings.runtime_dirs(sums)},
                BY_HOST: {"backend": "gradring", "runtime_dirs": rings.runtime_dirs(host)},
                GLOO: {"backend": "gloo"}}
        if nccl.pairs:
            ways[NCCL] = {"backend": "nccl"}
        model = {"width": 256, "layers": 4, "rows": [16, 1024]} if setting.quick else \
            {"width": 2048, "layers": 8, "rows": [256, 65536]}
        told = {"ways": ways, "fits": [OURS, BY_HOST], **model, "rounds": 2 if setting.quick else 5, "steps": 2 if setting.quick else 4}
        job = rings.launch("overlap", told, environment=nccl.environment if nccl.pairs else ())
        try:
            ended(job, SECONDS)
        finally:
            if rounds := reports(job[0]):
                tell(what, rounds[-1], nccl)
        if sums == SUMS and not setting.quick:
            rings.tell_sums(sums)


def tell(what, told, nccl):
    alone = statistics.median(told["ms"][ALONE])
    backward = 2 / 3 * alone  # of products of matrices: one forward, two back
    print(f"\n{what}: steps of DDP by two ranks, {told['bytes'] / 4e6:.1f} M parameters, {told['rows']} rows a rank; ms, median of the "
          f"rounds (least to most)")
    rows = [["computing alone", spread(told["ms"][ALONE], 2), "1.00", "", ""]]
    for way, took in told["ms"].items():
        if way != ALONE:
            exchange = told["exchange"][way]
            rows.append([way, spread(took, 2), f"{statistics.median(took) / alone:.3f}", f"{exchange:.2f}", f"{exchange / backward:.2f}"])
    show(["", "a step", "times alone", "exchange alone", "of the backward pass"], rows)
    for way in (OURS, BY_HOST):
        times, fits = statistics.median(told["ms"][way]) / alone, told["exchange"][way] <= backward
        if fits:
            goal(f"{what}, {way}: a step is at most {MORE_AT_MOST} times computing alone: {times:.3f}", times <= MORE_AT_MOST)
        else:
            print(f"{what}, {way}: the exchange is longer than the backward pass, so that it cannot hide: {times:.3f}")
    if not nccl.pairs:
        print(f"NCCL: left out, {nccl.why}")


def run(setting):
    or_without(ask(setting, PAIR), lambda nccl: measure("one node", setting, (SUMS, HOST), nccl))
    if not setting.quick:
        or_without(ask(setting, SOCKETS), lambda nccl: measure("two nodes, over loopback", setting, (NODES_SUMS, NODES_HOST), nccl))
