"""Draws what a comparison measured: plot.py FILE.json..., a picture beside each. Needs matplotlib."""

import json
import statistics
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (a backend without a screen, first)

OURS = {"gradring": "#d1495b", "gradring-copy": "#edae49", "gradring-bf16": "#9d0208"}
OTHERS = ["#00798c", "#30638e", "#003d5b", "#5b8e7d", "#8d6a9f", "#7f7f7f", "#a3b18a", "#bc6c25"]


def label_of(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def draw(path):
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    sizes = found["sizes"]
    figure, axes = plt.subplots(figsize=(8, 5))
    others = iter([(color, *way) for way in (("o", "-"), ("s", "--")) for color in OTHERS])
    for one in found["results"]:
        name = one["name"]
        if name.startswith("hand-") or one["error"]:
            continue
        points = [(size, 1e3 * statistics.median(one["rounds"][str(size)]["seconds"])) for size in sizes
                  if str(size) in one["rounds"]]
        ours = name in OURS
        color, marker, line = (OURS[name], "o", "-") if ours else next(others)
        axes.plot(*zip(*points), label=name, color=color, linestyle=line, linewidth=2.4 if ours else 1.2,
                  marker=marker, markersize=5 if ours else 3, zorder=3 if ours else 2)
    limits = [(int(size), 1e3 * seconds) for size, seconds in found["limit_seconds"].items()]
    if limits:
        axes.plot(*zip(*limits), label="the limit", color="black", linestyle="--", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [label_of(size) for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("float32 gradients of a rank")
    axes.set_ylabel("ms an allreduce (median)")
    axes.set_title(found["title"])
    axes.grid(True, which="major", alpha=0.25)
    axes.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(Path(path).with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(Path(path).with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    for file in sys.argv[1:]:
        draw(file)
