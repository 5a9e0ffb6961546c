"""What a small allreduce takes, from its call until the GPU is through, beside a kernel of the same process, while the GPU has
nothing else to do."""

import statistics
from dataclasses import replace

import torch
from nccl import PAIR, ask, or_without
from rings import HOST, SUMS, Rings, ended, reports
from table import goal, in_bytes, show

KERNEL, ALONE, BOTH, BY_HOST = "kernel", "gradring, 1 rank", "gradring, 2 ranks, gpu-sums", "gradring, 2 ranks, by the host"
NCCL_ALONE, NCCL_PAIR, GLOO = "NCCL, 1 rank (in place: nothing to do)", "NCCL, 2 ranks", "gloo, 2 ranks"
MORE_AT_MOST = 30  # us, than a kernel of one process
SECONDS = 150


def run(setting):
    alone = setting.device == "cuda" and torch.distributed.is_nccl_available()
    or_without(replace(ask(setting, PAIR), alone=alone), lambda nccl: measure(setting, nccl))


def measure(setting, nccl):
    """Tells the figures, also those until something failed."""
    with Rings(setting, [SUMS, HOST]) as rings:
        sums, host = rings.runtime_dirs(SUMS), rings.runtime_dirs(HOST)
        ways = {ALONE: {"backend": "gradring", "runtime_dirs": sums, "ranks": [0]},
                BOTH: {"backend": "gradring", "runtime_dirs": sums},
                BY_HOST: {"backend": "gradring", "runtime_dirs": host},
                GLOO: {"backend": "gloo"}}
        if nccl.alone:
            ways[NCCL_ALONE] = {"backend": "nccl", "ranks": [0]}
        if nccl.pairs:
            ways[NCCL_PAIR] = {"backend": "nccl"}
        told = {"ways": ways, "sizes": [4, 4096], "rounds": 2 if setting.quick else 5, "times": 20 if setting.quick else 200}
        job = rings.launch("latency", told, environment=nccl.environment if nccl.pairs else ())
        try:
            ended(job, SECONDS)
        finally:
            for one in reports(job[0]):
                tell(one["size"], one["us"])


def tell(size, taken):
    middle, rows = {}, []
    floor = statistics.median(done for *_, done in taken[KERNEL])
    for way, times in taken.items():
        started, waited, done = zip(*times)
        middle[way] = statistics.median(done)
        tenths = statistics.quantiles(done, n=10)
        rows.append([way, f"{statistics.median(started):.1f}", f"{statistics.median(waited):.1f}", f"{middle[way]:.1f}",
                     f"{tenths[0]:.1f} to {tenths[-1]:.1f}", f"{middle[way] - floor:+.1f}"])
    print()
    show([f"allreduce of {in_bytes(size)}, us since its call", "started", "wait() is back", "GPU is through", "8 of 10",
          "more than a kernel"], rows)
    for way in (ALONE, BOTH, BY_HOST):
        more = middle[way] - floor
        goal(f"{in_bytes(size)}: {way} takes at most {MORE_AT_MOST} us more than {KERNEL}: {more:+.1f}", more <= MORE_AT_MOST)
