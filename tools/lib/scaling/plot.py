"""Draws what was predicted: plot.py FILE.json FOLDER. Needs matplotlib."""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (a backend without a screen, first)

COLORS = {"Inception V3": "#00798c", "ResNet-101": "#edae49", "VGG-16": "#d1495b"}
WAYS = (({"hierarchy": True, "wire": "native"}, "-", "gradring"), ({"hierarchy": True, "wire": "bf16"}, "--", "16 bits on the wire"),
        ({"hierarchy": False, "wire": "native"}, ":", "flat ring"))


def points(lines, value, **wanted):
    chosen = [line for line in lines if all(line.get(key) == given for key, given in wanted.items())]
    return [(line["ranks"], value(line)) for line in sorted(chosen, key=lambda line: line["ranks"])]


def finish(axes, title, y_label):
    axes.set_xscale("log", base=2)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("GPUs")
    axes.set_ylabel(y_label)
    axes.grid(True, which="major", alpha=0.25)
    axes.legend(fontsize=8, frameon=False)


def horovod(axes, found):
    published = found["published"]
    for model, color in COLORS.items():
        for way, style, says in WAYS:
            axes.plot(*zip(*points(found["horovod"], lambda line: 100 * line["efficiency"], model=model, **way)), style, color=color,
                      label=f"{model}, {says}")
        dots = [(4 * int(nodes), percents[model]) for nodes, percents in published.items()]
        axes.plot(*zip(*dots), "X", color=color, markersize=9, markeredgecolor="black", label=f"{model}, Horovod, published")
    axes.set_ylim(0, 102)
    finish(axes, "4 GPUs and 25 Gbit/s a node", "scaling efficiency, %")


def today(axes, found):
    for machine, color, what in (("nodes-8x400-host", "#d1495b", "host memory"), ("nodes-8x400-gpu", "#00798c", "if GPUs summed")):
        for way, style, says in WAYS:
            axes.plot(*zip(*points(found["sums"], lambda line: line["ms"], machine=machine, bytes=1 << 30, **way)), style, color=color,
                      label=f"{what}, {says}")
    axes.set_yscale("log")
    finish(axes, "8 GPUs and 8 x 400 Gbit/s a node: allreduce of 1 GiB", "ms")


def draw(path, folder):
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    figure, both = plt.subplots(1, 2, figsize=(13, 5.4))
    horovod(both[0], found)
    today(both[1], found)
    figure.tight_layout()
    figure.savefig(Path(folder) / "predictions.svg", metadata={"Date": None})
    figure.savefig(Path(path).with_suffix(".png"), dpi=90)


if __name__ == "__main__":
    draw(sys.argv[1], sys.argv[2])
