"""The tables of docs/scaling.md."""

from compare.scenarios import text_of

from .predict import DECODER, HOROVOD_NODES, NODES, PUBLISHED

WIRES = ("native", "bf16")


def table(head, rows, left=1):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join(["---"] * left + ["---:"] * (len(head) - left)) + " |"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def ms(value):
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def percent(value):
    return f"{100 * value:.0f}"


def only(lines, **wanted):
    found = [line for line in lines if all(line.get(key) == value for key, value in wanted.items())]
    return found[0] if found else None


def check(found):
    rows = []
    for line in found["check"]:
        remark = "fitted to it" if line["fitted"] else line["note"]
        rows.append([f"{line['scenario']}: {line['nodes']} x {line['ranks'] // line['nodes']}", text_of(line["bytes"]), line["wire"],
                     ms(line["measured_ms"]), ms(line["ms"]), f"{100 * line['error']:+.0f} %", line["date"], remark])
    return table(["nodes x ranks", "size", "wire", "measured ms", "predicted ms", "error", "measured on", ""], rows, 1)


def horovod(found):
    rows = []
    for nodes in HOROVOD_NODES:
        for model, published in PUBLISHED[nodes].items():
            cells = []
            for kind, hierarchy in (("horovod_exact", True), ("horovod", True), ("horovod", False)):
                for wire in WIRES:
                    line = only(found[kind], model=model, nodes=nodes, hierarchy=hierarchy, wire=wire)
                    cells.append(percent(line["efficiency"]) if line else "")
            rows.append([f"{nodes} x 4", model, str(published), *cells])
    return table(["nodes x GPUs", "model", "Horovod, published", "gradring", "bf16", "in step", "in step, bf16", "flat, in step",
                  "flat, in step, bf16"], rows, 2)


def limits(found):
    rows = []
    for line in found["limits"]:
        if line["wire"] == "native":
            other = only(found["limits"], says=line["says"], wire="bf16")
            rows.append([line["says"], percent(line["efficiency"]), percent(other["efficiency"]), percent(line["busy_part"])])
    return table(["VGG-16 on 128 x 4", "efficiency %", "with bf16 %", "the data thread works, % of the time"], rows)


def sums(found, machine):
    rows = []
    for nodes in NODES:
        cells = []
        for size in (64 << 20, 1 << 30):
            for hierarchy, wire in ((True, "native"), (True, "bf16"), (False, "native")):
                line = only(found["sums"], machine=machine, nodes=nodes, bytes=size, hierarchy=hierarchy, wire=wire)
                cells.append(ms(line["ms"]) if line else "")
        large = only(found["sums"], machine=machine, nodes=nodes, bytes=1 << 30, hierarchy=True, wire="native")
        ranks = large["ranks"]
        cells.append(f"{large['bytes'] * 2 * (ranks - 1) / ranks / large['ms'] / 1e6:.1f}")
        cells.append(ms(large["thinking_ms"]))
        rows.append([f"{nodes:,} x 8", *cells])
    return table(["nodes x GPUs", "64 MiB", "bf16", "flat", "1 GiB", "bf16", "flat", "busbw GB/s", "thinking here"], rows)


def steps(found):
    rows = []
    for nodes in NODES:
        cells = [percent(only(found["steps"], model=DECODER, machine=machine, nodes=nodes, wire=wire)["efficiency"])
                 for machine in ("nodes-8x400-host", "nodes-8x400-gpu") for wire in WIRES]
        rows.append([f"{nodes:,} x 8", *cells])
    return table(["nodes x GPUs", "summed in host memory", "bf16", "if GPUs summed", "bf16"], rows)


def machines(described):
    """Each number once, where it is new."""
    rows, said = [], {}
    for machine in described:
        for field, (value, why) in machine["costs"].items():
            rows.append([machine["name"] if machine["name"] != said.get("name") else "", f"`{field}`", f"{value:,}", why])
            said["name"] = machine["name"]
    return table(["machine", "field", "", "where it comes from"], rows, 2)
