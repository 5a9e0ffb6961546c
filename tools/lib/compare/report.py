"""Tables for people and for docs/performance.md, and the same as pictures."""

import json
from pathlib import Path

from .scenarios import text_of

GB = 1e9


def limit_of(scenario, size, running):
    """(seconds, what sets it) that no exchange can beat here; None where that is not known."""
    if scenario.rate:
        return scenario.line_seconds(size), "the links"
    hands = [one for one in running if one.contestant.name.startswith("hand-") and size in one.figures and not one.error]
    if scenario.nodes > 1 or not hands:
        return None
    best = min(hands, key=lambda one: one.figures[size].median())
    return best.figures[size].median(), best.contestant.explains


def shown(seconds):
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:.0f}"


def rows(scenario, sizes, running):
    """Fastest at the largest size first; the sums by hand are one row, the limit."""
    real = [one for one in running if not one.contestant.name.startswith("hand-") and one.figures and not one.error]
    return sorted(real, key=lambda one: one.figures[sizes[-1]].median() if sizes[-1] in one.figures else 1e9)


def markdown(scenario, sizes, running):
    ranks, last = scenario.ranks, sizes[-1]
    head = [f"| {'median ms':<16} |"] + [f" {text_of(size)} |" for size in sizes]
    lines = [f"### {scenario.title()}", "",
             "".join(head) + f" spread at {text_of(last)} | busbw GB/s | % of the limit | CPU s/GB: own | machine |",
             "| --- |" + " ---: |" * (len(sizes) + 5)]
    limit = limit_of(scenario, last, running)
    for one in rows(scenario, sizes, running):
        cells = [shown(one.figures[size].median()) if size in one.figures else "-" for size in sizes]
        if last in one.figures:
            of = one.figures[last]
            took = of.median()
            cells += [f"{shown(min(of.seconds))}..{shown(max(of.seconds))}",
                      f"{last * 2 * (ranks - 1) / ranks / took / GB:.2f}",
                      f"{100 * limit[0] / took:.0f}" if limit else "-",
                      f"{middle(of.cpu) * GB / last:.2f}", f"{middle(of.machine) * GB / last:.2f}"]
        else:
            cells += ["-"] * 5
        lines.append(f"| {one.contestant.name:<16} | " + " | ".join(cells) + " |")
    limits = [limit_of(scenario, size, running) for size in sizes]
    if any(limits):
        lines.append(f"| *{'the limit*':<15} | " + " | ".join(shown(one[0]) if one else "-" for one in limits) +
                     " | | | 100 | | |")
        lines += ["", f"The limit at {text_of(last)} is set by: {limit[1]}." if limit else ""]
    for one in running:
        if one.error:
            lines += ["", f"{one.contestant.name} is not in the table: {one.error}"]
    return "\n".join(lines) + "\n"


def middle(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def contestants_table(contestants, context, errors):
    lines = ["| name | what it is | version |", "| --- | --- | --- |"]
    for one in contestants:
        version = errors.get(one.name) or one.version(context)
        lines.append(f"| {one.name} | {one.explains} | {version} |")
    return "\n".join(lines) + "\n"


def as_json(scenario, sizes, running):
    return {"scenario": scenario.letter, "title": scenario.title(), "sizes": list(sizes), "results": [
        {"name": one.contestant.name, "error": one.error,
         "rounds": {str(size): {"seconds": of.seconds, "cpu_seconds": of.cpu, "machine_cpu_seconds": of.machine}
                    for size, of in one.figures.items()}} for one in running],
        "limit_seconds": {str(size): limit[0] for size in sizes if (limit := limit_of(scenario, size, running))}}


PLOT = Path(__file__).resolve().parent / "plot.py"


def save(folder, scenario, sizes, running):
    """Writes the table and the figures; plot.py draws from the latter."""
    name = f"{folder}/scenario-{scenario.letter.lower()}"
    Path(f"{name}.md").write_text(markdown(scenario, sizes, running), encoding="utf-8")
    Path(f"{name}.json").write_text(json.dumps(as_json(scenario, sizes, running), indent=1), encoding="utf-8")
    return Path(f"{name}.json")


BEGIN, END = "<!-- tools/compare --publish writes from here -->\n", "<!-- to here -->\n"


def publish(document, head, files):
    """Puts the tables and pictures of these results into a document."""
    folder = document.parent / document.stem
    folder.mkdir(exist_ok=True)
    text = head + "\n"
    for file in files:
        picture = folder / file.with_suffix(".svg").name
        picture.write_bytes(file.with_suffix(".svg").read_bytes())
        text += f"\n{file.with_suffix('.md').read_text(encoding='utf-8')}\n![{file.stem}]({folder.name}/{picture.name})\n"
    before, _, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    document.write_text(before + BEGIN + "\n" + text + "\n" + END + rest.partition(END)[2], encoding="utf-8")
