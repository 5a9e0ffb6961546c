"""Training on one GPU by two ranks, through gradring and through others, beside one process on the same batches.

The ranks' gradients of half a batch each are averaged, a single process has that of the whole: another order of the same
additions, so weights differ by roundings, which training carries on. With a fault they differ by much more: a gradient
that is lost, doubled or late moves a weight by lr * |gradient|, some hundredths at the beginning. Of two ranks any right sum has
the same bits, as a + b has no order; so whether they are Gloo's is told too, and weights with Gloo's bits are right however far
off training has carried both.
"""

import numpy as np
from nccl import PAIR, ask
from rings import HOST, NODES_HOST, NODES_SUMS, ROOT, SUMS, Failed, Rings, ended
from table import show

DIGITS = ROOT / "client/examples/data/digits.csv"
# How far a weight may be from that of one process.
FLOAT32, FLOAT16 = 1e-3, 2e-2
TOLERANCES = {"DDP": FLOAT32, "FSDP2": FLOAT32, "GradScaler": FLOAT16, "SyncBatchNorm": FLOAT32, "DDP in a pool": FLOAT32,
              "FSDP2 in a pool": FLOAT32}
FOR_GPUS = ("SyncBatchNorm", "DDP in a pool", "FSDP2 in a pool")  # the pool is gradring's; others have their own memory there
SINGLE, GLOO, NCCL = "one process", "gloo", "NCCL"
SECONDS = 150  # for a job


def jobs(setting, nccl):
    """{name: (backend, ring, ranks)}."""
    of_gradring = [SUMS] if setting.quick else [SUMS, HOST, NODES_SUMS, NODES_HOST]
    chosen = {SINGLE: ("gloo", None, 1), **{f"gradring, {ring}": ("gradring", ring, 2) for ring in of_gradring},
              GLOO: ("gloo", None, 2)}
    if nccl.pairs:
        chosen[NCCL] = ("nccl", None, 2)
    return chosen


def run(setting):
    nccl = ask(setting, PAIR)
    chosen = jobs(setting, nccl)
    ways = [way for way in TOLERANCES if way not in FOR_GPUS or setting.device == "cuda"]
    if len(ways) < len(TOLERANCES):
        print(f"{', '.join(FOR_GPUS)}: left out, they are for GPUs")
    if not nccl.pairs:
        print(f"NCCL: left out, {nccl.why}")
    faults = []
    with Rings(setting, [ring for _, ring, _ in chosen.values() if ring]) as rings:
        told, weights = {}, {}
        try:
            for name, (backend, ring, ranks) in chosen.items():
                print(f"{name} ...")
                try:
                    told[name], weights[name] = train(setting, rings, backend, ring, ranks, ways, nccl)
                except Failed as error:
                    if ranks == 1:
                        raise
                    if backend == "gradring":
                        faults.append(f"{name} did not end well: {error}")
                    print(f"{name}: left out, it did not end well: {error}")
                    continue
                if ring == SUMS:
                    rings.tell_sums(ring)
        finally:  # also what was trained until something failed, or somebody ended this
            for way in ways if SINGLE in weights else ():
                faults += compare(way, told, weights, gradring=[name for name, how in chosen.items() if how[0] == "gradring"])
    if faults:
        raise Failed("\n".join(faults))


def train(setting, rings, backend, ring, ranks, ways, nccl):
    """What each rank reported, by way, and its weights, likewise."""
    results = rings.folder / f"weights-{backend}-{ranks}-{ring}"
    job = rings.launch("train", {"backend": backend, "ways": ways, "results": str(results), "digits": str(DIGITS),
                                 "epochs": 1 if setting.quick else 6, "steps": 8 if setting.quick else 24},
                       ranks=ranks, ring=ring, environment=nccl.environment if backend == "nccl" else ())
    told = [{one["way"]: one for one in said} for said in ended(job, SECONDS)]
    weights = [np.load(f"{results}.{rank}.npz") for rank in range(ranks)]
    return told, [{way: one[way] for way in one.files} for one in weights]


def compare(way, told, weights, gradring):
    """Prints how far each is from the single process; the faults of gradring's."""
    faults, rows = [], []
    single = weights[SINGLE][0].get(way)
    if single is None:
        return [f"{way}: one process refuses it: {told[SINGLE][0][way]['refused']}"]
    for name, ranks in weights.items():
        ours, first = name in gradring, told[name][0][way]
        if "refused" in first:
            rows.append([name, f"refused: {first['refused'][:90]}"])
            if ours:
                faults.append(f"{way}: {name} refuses it: {first['refused']}")
            continue
        off = float(np.max([np.abs(one[way] - single) for one in ranks]))
        gloo = weights.get(GLOO, [{}])[0].get(way)
        bits = "-" if gloo is None or name in (SINGLE, GLOO) else "the same" if (ranks[0][way] == gloo).all() else \
            f"{float(np.abs(ranks[0][way] - gloo).max()):.1e} off"
        alike = len({one[way]["digest"] for one in told[name]}) == 1
        more = ", ".join(f"{key} {first[key]:.3f}" for key in ("accuracy",) if key in first)
        if "scales" in first:
            more = f"{sum(b < a for a, b in zip(first['scales'], first['scales'][1:]))} step skipped"
        rows.append([name, f"{off:.1e}", bits, "yes" if alike else "NO", more])
        if ours and not off <= TOLERANCES[way] and bits != "the same":
            faults.append(f"{way}: {name} is {off:.1e} off, and {TOLERANCES[way]:.0e} is what roundings explain")
        if ours and not alike:
            faults.append(f"{way}: the ranks of {name} have different weights")
        if ours and first.get("scales") != told[SINGLE][0][way].get("scales"):
            faults.append(f"{way}: {name} scaled by {first['scales']}, one process by {told[SINGLE][0][way]['scales']}")
    print()
    show([f"{way} (at most {TOLERANCES[way]:.0e})", "furthest off one process", "bits of gloo", "ranks alike", ""], rows)
    return faults
