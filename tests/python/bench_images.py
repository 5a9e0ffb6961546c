"""The image example by 1, 2, 4 and 8 ranks, with gradring and with Gloo: bench_images.py [FILE.svg [ACCURACY [ROUNDS]]]

Ranks share the processors of this machine, two daemons from two ranks on; so the curves show what the exchange costs, not
what more machines bring. Prints a table, and draws it where matplotlib is there.
"""

import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))

import cluster as testbed  # noqa: E402

EXAMPLE = ROOT / "client/python/examples/images/train.py"
RANKS = (1, 2, 4, 8)
BACKENDS = ("gradring", "gloo")
COLOURS = {"gradring": "#d1495b", "gloo": "#00798c"}


def train(ring, backend, ranks, number, accuracy):
    folder = ring.folder
    results = folder / f"{number}.json"
    command = ["/usr/bin/env", "OMP_NUM_THREADS=1", "PYTHONWARNINGS=ignore", "GLOO_SOCKET_IFNAME=lo", sys.executable,
               EXAMPLE, "--dist-url", f"file://{folder}/store-{number}", "--dist-backend", backend, "--desired-acc",
               str(accuracy), "--results", results]
    nodes = ring.nodes[:min(ranks, 2)]
    job = ring.launch(f"images-{number}", command, per_node=ranks // len(nodes), nodes=nodes)
    statuses = job.wait(600)
    assert statuses == [0] * ranks, [one.complains()[-1500:] for one in job]
    return json.loads(results.read_text())


def measure(accuracy, rounds):
    """[backend][ranks]: a list of what each round told. Backends in turns."""
    told = {backend: {ranks: [] for ranks in RANKS} for backend in BACKENDS}
    number = 0
    with testbed.Cluster(ROOT / "build/bin", 2, network=testbed.Loopback) as ring:
        ring.start()
        for _ in range(rounds):
            for ranks in RANKS:
                for backend in BACKENDS:
                    number += 1
                    told[backend][ranks].append(train(ring, backend, ranks, number, accuracy))
                    print(f"\r{number} of {rounds * len(RANKS) * len(BACKENDS)} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return told


def rate(runs):
    return statistics.median(epoch["images_per_second"] for one in runs for epoch in one["curve"])


def seconds(runs):
    return statistics.median(one["seconds"] for one in runs)


def show(told, accuracy):
    print(f"ranks  images/s: gradring     gloo  ratio   s to {accuracy:g} %: gradring     gloo   epochs: gradring  gloo")
    for ranks in RANKS:
        ours, theirs = (told[backend][ranks] for backend in BACKENDS)
        epochs = [statistics.median(len(one["curve"]) for one in runs) for runs in (ours, theirs)]
        print(f"{ranks:5}  {rate(ours):18.0f}{rate(theirs):9.0f}{rate(ours) / rate(theirs):7.2f}  {seconds(ours):20.2f}"
              f"{seconds(theirs):9.2f}  {epochs[0]:16.0f}{epochs[1]:6.0f}")


def draw(told, accuracy, file):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (rates, times, curves) = plt.subplots(1, 3, figsize=(13, 4))
    for backend in BACKENDS:
        look = {"color": COLOURS[backend], "marker": "o", "label": backend}
        rates.plot(RANKS, [rate(told[backend][ranks]) for ranks in RANKS], **look)
        times.plot(RANKS, [seconds(told[backend][ranks]) for ranks in RANKS], **look)
        curve = told[backend][4][0]["curve"]
        for name, style in (("top1", "-"), ("top5", ":")):
            curves.plot([one["epoch"] for one in curve], [one[name] for one in curve], style, color=COLOURS[backend],
                        label=f"{backend}, top-{name[3:]}")
    for axes, title, words in ((rates, "images a second", "ranks"), (times, f"seconds to {accuracy:g} %", "ranks"),
                               (curves, "percent right, 4 ranks", "epoch")):
        axes.set_title(title)
        axes.set_xlabel(words)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=8)
    for axes in (rates, times):
        axes.set_xscale("log", base=2)
        axes.set_xticks(RANKS, [str(ranks) for ranks in RANKS])
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    figure.savefig(Path(file).with_suffix(".png"), dpi=100)


def main(file="", accuracy="95", rounds="3"):
    told = measure(float(accuracy), int(rounds))
    show(told, float(accuracy))
    if file:
        draw(told, float(accuracy), file)


if __name__ == "__main__":
    main(*sys.argv[1:])
