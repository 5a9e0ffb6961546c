"""Draws the dashboard's panels without Grafana, from a Prometheus that has the data.

usage: render.py PROMETHEUS_URL OUT [--seconds N] [--node REGEX] [--job REGEX]     OUT: a .png or .svg; needs matplotlib

The last N seconds (120) are shown. It knows what gradring.json has: rows, stats, time series and these units.
"""

import argparse
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (a backend without a screen, first)
from matplotlib.ticker import FuncFormatter  # noqa: E402  (likewise)

sys.path.insert(0, str(Path(__file__).resolve().parent))
import dashboard  # noqa: E402  (found by the line above)

BACKGROUND, PANEL, TEXT, FAINT = "#111217", "#181b1f", "#ccccdc", "#3a3d44"
COLORS = ["#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#b877d9", "#f2495c", "#8ab8ff", "#37872d", "#e0b400", "#ffa6b0"]
LEGEND_MOST = 6
CELL = 0.62, 0.36  # inches of a column and of a row of Grafana's grid


def scaled(value, steps, unit):
    for factor, prefix in steps:
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()


DECIMAL = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")]
BINARY = [(1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")]


def seconds(value, _=None):
    for factor, unit in ((60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {unit}"
    return "0 s"


UNITS = {"short": lambda value, _=None: scaled(value, DECIMAL, "") if abs(value) >= 1e3 else f"{value:.3g}",
         "s": seconds,
         "ops": lambda value, _=None: scaled(value, DECIMAL, "") + "/s",
         "Bps": lambda value, _=None: scaled(value, DECIMAL, "B/s"),
         "bytes": lambda value, _=None: scaled(value, BINARY, "B"),
         "percentunit": lambda value, _=None: f"{100 * value:.3g} %"}


def place(figure, panel, height):
    """Axes where Grafana would have the panel."""
    at = panel["gridPos"]
    stat = panel["type"] == "stat"
    left, top = at["x"] + (0.15 if stat else 1.35), at["y"] + 1.35
    width, tall = at["w"] - (0.3 if stat else 1.6), at["h"] - (1.5 if stat else 3.3)
    figure.patches.append(plt.Rectangle(((at["x"] + 0.06) / 24, 1 - (at["y"] + at["h"] - 0.06) / height),
                                        (at["w"] - 0.12) / 24, (at["h"] - 0.12) / height, facecolor=PANEL,
                                        edgecolor=FAINT, linewidth=0.6, transform=figure.transFigure, zorder=-1))
    figure.text((at["x"] + 0.25) / 24, 1 - (at["y"] + 0.85) / height, panel["title"], color=TEXT, fontsize=8.5)
    axes = figure.add_axes((left / 24, 1 - (top + tall) / height, width / 24, tall / height), facecolor=PANEL)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes


def draw_stat(axes, panel, prometheus, names, at):
    axes.set_axis_off()
    found = prometheus.query(dashboard.substitute(panel["targets"][0]["expr"], **names), at)
    value = float(found[0]["value"][1]) if found else None
    defaults = panel["fieldConfig"]["defaults"]
    color = "#73bf69"
    for step in defaults["thresholds"]["steps"]:
        if value is not None and step["value"] is not None and value >= step["value"]:
            color = "#f2495c"
    axes.text(0.5, 0.45, "no data" if value is None else UNITS[defaults["unit"]](value), color=color, fontsize=19,
              ha="center", va="center", transform=axes.transAxes)


def draw_series(axes, panel, prometheus, names, begin, end):
    shown = 0
    top = 0
    for target in panel["targets"]:
        expression = dashboard.substitute(target["expr"], **names)
        for series in prometheus.query_range(expression, begin, end, step=1):
            points = [(float(time) - end, float(value)) for time, value in series["values"] if value != "NaN"]
            if not points:
                continue
            top = max(top, *(value for _, value in points))
            label = dashboard.legend(target["legendFormat"], series["metric"])
            axes.plot(*zip(*points), color=COLORS[shown % len(COLORS)], linewidth=1.1,
                      label=label if shown < LEGEND_MOST else None)
            shown += 1
    axes.set_xlim(begin - end, 0)
    axes.set_ylim(0, top * 1.15 or 1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} s" if value else "now"))
    axes.yaxis.set_major_formatter(FuncFormatter(UNITS[panel["fieldConfig"]["defaults"]["unit"]]))
    axes.locator_params(nbins=4)
    axes.tick_params(colors=TEXT, labelsize=6.5, length=0)
    axes.grid(True, color=FAINT, linewidth=0.5)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.13), ncol=2, fontsize=6, frameon=False, labelcolor=TEXT,
                    handlelength=1.2, columnspacing=1, borderaxespad=0)
    elif not shown:
        axes.text(0.5, 0.5, "no data", color=FAINT, ha="center", va="center", transform=axes.transAxes)
    if shown > LEGEND_MOST:
        axes.set_title(f"and {shown - LEGEND_MOST} more", color=TEXT, fontsize=6, loc="right", pad=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prometheus")
    parser.add_argument("out")
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--node", default=".*")
    parser.add_argument("--job", default=".*")
    options = parser.parse_args()
    prometheus = dashboard.Prometheus(options.prometheus)
    names = {"node": options.node, "job": options.job, "seconds": options.seconds}
    end = prometheus.now()
    panels = dashboard.panels()
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = plt.figure(figsize=(24 * CELL[0], height * CELL[1]), facecolor=BACKGROUND)
    for panel in panels:
        if panel["type"] == "row":
            figure.text(0.25 / 24, 1 - (panel["gridPos"]["y"] + 0.75) / height, panel["title"], color=TEXT, fontsize=11,
                        weight="bold")
        elif panel["type"] == "stat":
            draw_stat(place(figure, panel, height), panel, prometheus, names, end)
        else:
            draw_series(place(figure, panel, height), panel, prometheus, names, end - options.seconds, end)
    figure.savefig(options.out, facecolor=BACKGROUND, dpi=90)


if __name__ == "__main__":
    main()
