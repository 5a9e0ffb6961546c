#!/usr/bin/env python3
"""Draws some milliseconds of a trace, as Perfetto would show them: processes, tracks, slices, and arrows between them.

usage: timeline.py [--begin MS] [--length MS] TRACE.json OUT.png

TRACE is what `gradringctl trace` wrote. Needs matplotlib. Without --begin it starts with an op in the middle.
"""

import argparse
import json
import sys
import zlib

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (after the choice of its backend)
from matplotlib.patches import FancyArrowPatch, Rectangle  # noqa: E402

COLOURS = ("#5b8ff9", "#61b15a", "#e8a838", "#c56cf0", "#e8684a", "#3ab0a2", "#9b7653", "#7f8fa6")
NEGOTIATE = "#d5d8dd"
INK = "#20242a"
ROW = 1.0


class Trace:
    """The events of a trace, by what they are. Times in milliseconds."""

    def __init__(self, events):
        self.processes = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
        self.tracks = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
        self.slices = [one for one in events if one["ph"] == "X"]
        self.flows = {}
        for one in events:
            if one["ph"] in "stf":
                self.flows.setdefault(one["id"], []).append(one)

    def middle(self):
        """When the first rank submits an op in the middle of the trace, in ms."""
        ops = sorted((one for one in self.slices if one.get("cat") == "op"), key=lambda one: one["ts"])
        if not ops:
            raise ValueError("there is no op in it")
        name = ops[len(ops) // 2]["name"]
        return min(one["ts"] for one in ops if one["name"] == name) / 1000

    def seen(self, begin, end):
        """The slices that are seen from begin to end, in ms."""
        return [one for one in self.slices if one["ts"] < end * 1000 and one["ts"] + one["dur"] > begin * 1000]


def depths(slices):
    """How deep each slice lies in others of its track."""
    found, open_by_track = {}, {}
    for one in sorted(slices, key=lambda s: (s["ts"], -s["dur"])):
        stack = open_by_track.setdefault((one["pid"], one["tid"]), [])
        while stack and stack[-1] <= one["ts"] + 1e-6:
            stack.pop()
        found[id(one)] = len(stack)
        stack.append(one["ts"] + one["dur"])
    return found


def rows_of(trace, slices):
    """Vertical place of each track, by process, and of the processes' heads; downwards."""
    depth, deepest = depths(slices), {}
    for one in slices:
        track = one["pid"], one["tid"]
        deepest[track] = max(deepest.get(track, 0), depth[id(one)])
    place, heads, y = {}, {}, 0.0
    for pid in sorted({pid for pid, _ in deepest}, key=lambda p: trace.processes[p]):
        heads[pid] = y
        y += 1.2 * ROW
        for track in sorted(one for one in deepest if one[0] == pid):
            y -= 0.3 * (" +" in trace.tracks[track])  # more room for the track above
            place[track] = y
            y += (deepest[track] + 1) * ROW + 0.35
        y += 0.3
    return place, heads, depth, y


def colour_of(one):
    if one["name"].startswith("NEGOTIATE"):
        return NEGOTIATE
    return COLOURS[zlib.crc32(one["name"].split(" slice ")[0].encode()) % len(COLOURS)]


def put_slice(axes, one, y, begin, end):
    left, right = max(one["ts"] / 1000, begin), min((one["ts"] + one["dur"]) / 1000, end)
    axes.add_patch(Rectangle((left, y), right - left, ROW * 0.92, facecolor=colour_of(one), edgecolor="white", linewidth=0.4))
    width = (right - left) / (end - begin) * 175  # in letters, about
    name = one["name"].replace(" slice ", " #") if one.get("cat") == "slice" else one["name"]
    if width > 3:
        text = name if len(name) <= width else name[:max(int(width) - 1, 1)] + "…"
        axes.text(left + (end - begin) * 0.002, y + ROW * 0.48, text, fontsize=7, va="center", color=INK, clip_on=True)


def put_arrows(axes, trace, place, begin, end):
    for steps in trace.flows.values():
        steps = [one for one in sorted(steps, key=lambda s: s["ts"])
                 if (one["pid"], one["tid"]) in place and begin <= one["ts"] / 1000 <= end]
        points = [(one["ts"] / 1000, place[one["pid"], one["tid"]] + ROW * 0.5) for one in steps]
        for near, far in zip(points, points[1:]):
            if near[1] != far[1]:  # within a track it would only hide what it leads to
                axes.add_patch(FancyArrowPatch(near, far, connectionstyle="arc3,rad=0.12", arrowstyle="-|>", mutation_scale=7,
                                               linewidth=0.7, color="#1a4fbf", alpha=0.75, zorder=3))


def draw(trace, begin, length, path):
    end = begin + length
    slices = trace.seen(begin, end)
    if not slices:
        raise ValueError(f"there is nothing from {begin:g} to {end:g} ms")
    place, heads, depth, bottom = rows_of(trace, slices)
    figure, axes = pyplot.subplots(figsize=(15, 0.19 * bottom + 0.7), dpi=110)
    for one in slices:
        put_slice(axes, one, place[one["pid"], one["tid"]] + depth[id(one)] * ROW, begin, end)
    put_arrows(axes, trace, place, begin, end)
    for pid, y in heads.items():
        axes.axhspan(y, y + ROW, color="#eef1f6", zorder=0)
        axes.text(begin, y + ROW * 0.5, f" {trace.processes[pid]}", fontsize=8.5, va="center", weight="bold", color=INK)
    axes.set_yticks([y + ROW * 0.5 for y in place.values()],
                    [trace.tracks[track] for track in place], fontsize=8)
    axes.set(xlim=(begin, end), ylim=(bottom, 0))
    axes.xaxis.tick_top()
    axes.set_xticks([begin + length * i / 10 for i in range(11)], [f"{length * i / 10:g} ms" for i in range(11)], fontsize=8)
    axes.grid(axis="x", color="#e3e6eb", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.tight_layout(pad=0.6)
    figure.savefig(path, metadata={"Software": None})


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--begin", type=float, help="in ms since the trace began")
    parser.add_argument("--length", type=float, default=100, help="ms to show")
    parser.add_argument("trace")
    parser.add_argument("out")
    chosen = parser.parse_args(words)
    try:
        with open(chosen.trace, encoding="utf-8") as file:
            trace = Trace(json.load(file)["traceEvents"])
        draw(trace, trace.middle() if chosen.begin is None else chosen.begin, chosen.length, chosen.out)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"{chosen.trace}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
