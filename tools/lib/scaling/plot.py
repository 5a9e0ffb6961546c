"""Draws what was predicted: plot.py FILE.json FOLDER. Needs matplotlib."""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (a backend without a screen, first)
from matplotlib.lines import Line2D  # noqa: E402  (likewise)

COLORS = {"Inception V3": "#00798c", "ResNet-101": "#edae49", "VGG-16": "#d1495b"}
WAYS = (({"hierarchy": True, "wire": "native"}, "-", "gradring"), ({"hierarchy": True, "wire": "bf16"}, "--", "16 bits on the wire"),
        ({"hierarchy": False, "wire": "native"}, ":", "flat ring"))


def points(lines, value, **wanted):
    chosen = [line for line in lines if all(line.get(key) == given for key, given in wanted.items())]
    return [(line["ranks"], value(line)) for line in sorted(chosen, key=lambda line: line["ranks"])]


def finish(axes, title, y_label, handles):
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("GPUs")
    axes.set_ylabel(y_label)
    axes.grid(True, which="major", alpha=0.25)
    axes.legend(handles=handles, fontsize=8, frameon=False, ncol=3, loc="upper center", bbox_to_anchor=(0.5, -0.13))


def keys(colors):
    """What a colour and what a style means."""
    return [Line2D([], [], color=color, label=what) for what, color in colors.items()] + [
        Line2D([], [], color="black", linestyle=style, label=says) for _, style, says in WAYS]


def horovod(axes, found):
    for model, color in COLORS.items():
        for way, style, _ in WAYS:
            axes.plot(*zip(*points(found["horovod"], lambda line: 100 * line["efficiency"], model=model, **way)), style, color=color)
        for wire, fill in (("native", color), ("bf16", "white")):
            dots = points(found["horovod_exact"], lambda line: 100 * line["efficiency"], model=model, wire=wire)
            if dots:
                axes.plot(*zip(*dots), "o", color=color, markerfacecolor=fill)
        dots = [(4 * int(nodes), percents[model]) for nodes, percents in found["published"].items()]
        axes.plot(*zip(*dots), "X", color=color, markersize=9, markeredgecolor="black")
    axes.set_ylim(0, 102)
    marks = [Line2D([], [], color="grey", marker="o", linestyle="", label="every node run"),
             Line2D([], [], color="grey", marker="o", markerfacecolor="white", linestyle="", label="the same, 16 bits"),
             Line2D([], [], color="grey", marker="X", markeredgecolor="black", linestyle="", label="Horovod, published")]
    finish(axes, "4 GPUs and 25 Gbit/s a node", "scaling efficiency, %", keys(COLORS) + marks)


def today(axes, found):
    machines = {"summed in host memory": ("nodes-8x400-host", "#d1495b"), "if GPUs summed": ("nodes-8x400-gpu", "#00798c")}
    for machine, color in machines.values():
        for way, style, _ in WAYS:
            axes.plot(*zip(*points(found["sums"], lambda line: line["ms"], machine=machine, bytes=1 << 30, **way)), style, color=color)
    axes.set_yscale("log")
    finish(axes, "8 GPUs and 8 x 400 Gbit/s a node: allreduce of 1 GiB", "ms",
           keys({what: color for what, (_, color) in machines.items()}))


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
