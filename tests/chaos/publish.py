"""Writes the totals of all runs into docs/reliability.md, between its marks, and draws the times to verdict."""

from .stopwatch import BOUNDS, LAST_OF_NODE
from .totals import Histogram, end_of, save

BEGIN, END = "<!-- tools/chaos --publish begins -->", "<!-- tools/chaos --publish ends -->"


def publish(root, totals):
    page = root / "docs/reliability.md"
    before, rest = page.read_text().split(BEGIN)
    _old, after = rest.split(END)
    page.write_text(before + BEGIN + "\n" + table(totals) + END + after)
    folder = root / "docs/reliability"
    save(folder / "totals.json", totals)
    (folder / "time-to-verdict.svg").write_text(picture(totals))


def table(totals):
    runs = totals["runs"]
    minutes = sum(run["seconds"] for run in runs) / 60
    loads = sorted(float(run["load"]) for run in runs)
    late = sorted(run["wakeup"][1] for run in runs)
    still = max((run["standstill"] for run in runs if "standstill" in run), default=0.0)
    lines = ["", "| | |", "| --- | --- |",
             f"| runs, minutes | {len(runs)}, {minutes:.0f} |",
             f"| faults | {sum(totals['faults'].values())} |",
             f"| of them while a view change was under way | {totals['during_a_view_change']} |",
             f"| SIGKILLs | {totals['sigkills']} |",
             f"| verdicts compared, of ops | {totals['verdicts']}, {totals['ops']} |",
             f"| hangs | {totals['hangs']} |",
             f"| no op ended for anybody while nothing was stopped or cut, longest | {still:.1f} s |",
             f"| divergent verdicts or wrong bits | {totals['divergences']} |",
             f"| told otherwise at a node that was left out, as the contract allows | {totals['excused']} |",
             f"| load average at the end of a run, median and highest | {loads[len(loads) // 2]:.1f}, {loads[-1]:.1f} |",
             f"| a control process is woken late, p99, median and worst run | {late[len(late) // 2] * 1e3:.1f} ms, "
             f"{late[-1] * 1e3:.1f} ms |", "",
             "| fault | times | measured | p50 | p99 | bound |", "| --- | --- | --- | --- | --- | --- |"]
    counts = {**totals["faults"], LAST_OF_NODE: None}  # of the kills above
    for kind, count in sorted(counts.items(), key=lambda one: -(one[1] or 0)):
        times = Histogram(totals["times"].get(kind))
        figures = (f"{times.total()} | {times.percentile(.5):.3f} s | {times.percentile(.99):.3f} s | {BOUNDS[kind]} s"
                   if times.total() else " | | | ")
        lines.append(f"| {kind} | {count or ''} | {figures} |")
    return "\n".join(lines) + "\n\n![Time to verdict by kind of fault](reliability/time-to-verdict.svg)\n"


# ---- the picture: a row for each kind, time on a logarithmic axis ----

LEFT, TOP, ROW, WIDTH = 150, 46, 46, 560
FIRST, LAST = 1e-3, 100.0


def place(seconds):
    from math import log10
    share = (log10(max(FIRST, min(LAST, seconds))) - log10(FIRST)) / (log10(LAST) - log10(FIRST))
    return LEFT + WIDTH * share


def picture(totals):
    kinds = [kind for kind in BOUNDS if Histogram(totals["times"].get(kind)).total()]
    height = TOP + ROW * len(kinds) + 34
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 30}" height="{height}" '
             'font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="{LEFT}" y="18" font-size="14">Time from a fault until all that are left had their verdict</text>',
             f'<text x="{LEFT}" y="34" fill="#777">red: the bound of the contract; blue line: p99</text>']
    bottom = TOP + ROW * len(kinds)
    for seconds, label in ((1e-3, "1 ms"), (1e-2, "10 ms"), (.1, "0.1 s"), (1, "1 s"), (10, "10 s"), (100, "100 s")):
        x = place(seconds)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#555">{label}</text>')
    for row, kind in enumerate(kinds):
        parts += bars(kind, Histogram(totals["times"][kind]), TOP + ROW * (row + 1) - 4)
    return "\n".join(parts) + "\n</svg>\n"


def bars(kind, times, base):
    highest = max(times.counts.values())
    yield f'<text x="{LEFT - 8}" y="{base - 14}" text-anchor="end">{kind}</text>'
    yield f'<text x="{LEFT - 8}" y="{base}" text-anchor="end" fill="#777">{times.total()} times</text>'
    for bucket, count in sorted(times.counts.items()):
        left, right = place(end_of(bucket - 1)), place(end_of(bucket))
        tall = max(1.0, (ROW - 12) * count / highest)
        yield (f'<rect x="{left:.1f}" y="{base - tall:.1f}" width="{max(1.0, right - left - .5):.1f}" '
               f'height="{tall:.1f}" fill="#4a7fb5"/>')
    for seconds, color in ((BOUNDS[kind], "#c33"), (times.percentile(.99), "#123f6d")):
        x = place(seconds)
        yield f'<line x1="{x:.1f}" y1="{base - ROW + 10}" x2="{x:.1f}" y2="{base + 2}" stroke="{color}" stroke-width="1.5"/>'
