"""What speed.py measured, as a picture. SVG or PNG, by the name of the file.

Where there is no matplotlib the figures are kept, and drawn elsewhere: picture.py FILE.json FILE.svg
"""

import json
import statistics
import sys
from pathlib import Path

COLOURS = {"gradring, gpu-sums": "#d1495b", "gradring, by the host": "#edae49", "gloo": "#00798c", "NCCL": "#5d8a3a"}


def draw(figures, where, file):
    """`where`: whose memory the tensors are in. `figures`: {what: {size: {way: microseconds of each round}}}.

    What became of it, in words.
    """
    try:
        import matplotlib
    except ImportError:
        kept = Path(file).with_suffix(".json")
        kept.write_text(json.dumps({"figures": figures, "where": where}))
        return f"no picture: there is no matplotlib here; the figures are in {kept}, which picture.py draws"
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, places = plt.subplots(1, len(figures), figsize=(6 * len(figures), 4.5), sharey=True, squeeze=False)
    for place, (what, by_size) in zip(places[0], figures.items()):
        sizes = list(by_size)
        for way in next(iter(by_size.values())):
            rounds = [by_size[size][way] for size in sizes]
            middle = [statistics.median(one) for one in rounds]
            place.plot(sizes, middle, color=COLOURS[way], marker="o", markersize=4, label=way)
            place.fill_between(sizes, [min(one) for one in rounds], [max(one) for one in rounds], color=COLOURS[way], alpha=0.2, lw=0)
        place.set(xscale="log", yscale="log", title=what, xlabel="bytes")
        place.set_xscale("log", base=2)
        place.set_xticks(sizes, [short(size) for size in sizes])
        place.minorticks_off()
        place.grid(True, alpha=0.3)
    places[0][0].set_ylabel("us an op")
    places[0][0].legend(frameon=False)
    figure.suptitle(f"allreduce of float32 by two ranks, {where}")
    figure.tight_layout()
    figure.savefig(file)
    plt.close(figure)
    return f"the picture is in {file}"


def short(size):
    for power, unit in ((20, "M"), (10, "K")):
        if size >= 1 << power:
            return f"{size >> power}{unit}"
    return str(size)


def main(kept, file):
    told = json.loads(Path(kept).read_text())
    figures = {what: {int(size): taken for size, taken in by_size.items()} for what, by_size in told["figures"].items()}
    print(draw(figures, told["where"], file))


if __name__ == "__main__":
    main(*sys.argv[1:])
