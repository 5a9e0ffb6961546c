"""What all runs so far came to: a file that each run adds to, and that docs/reliability.md is written from."""

import json
import math
from pathlib import Path

# Times are kept in buckets of which each ends a tenth behind the one before.
STEP = 1.1
SHORTEST = 1e-4


def bucket_of(seconds):
    return max(0, math.ceil(math.log(max(seconds, SHORTEST) / SHORTEST, STEP)))


def end_of(bucket):
    return SHORTEST * STEP ** bucket


class Histogram:
    """Counts by bucket, as a plain dict with string keys, since it lives in JSON."""

    def __init__(self, counts=None):
        self.counts = {int(bucket): count for bucket, count in (counts or {}).items()}

    def add(self, seconds):
        bucket = bucket_of(seconds)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1

    def total(self):
        return sum(self.counts.values())

    def percentile(self, share):
        """The end of the bucket in which it lies, so never too good."""
        wanted, seen = share * self.total(), 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted:
                return end_of(bucket)
        return 0.0

    def plain(self):
        return {str(bucket): self.counts[bucket] for bucket in sorted(self.counts)}


ADDED = ("sigkills", "during_a_view_change", "verdicts", "ops", "shrunk", "excused", "hangs", "divergences",
         "other_complaints")


def load(path):
    if path and Path(path).exists():
        try:
            totals = json.loads(Path(path).read_text())
            totals["runs"], totals["faults"], totals["times"], *(totals[key] for key in ADDED)
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"tools/chaos: {path} has no totals of earlier runs: give --totals another name") from error
        return totals
    return {"runs": [], "faults": {}, "times": {}, **{key: 0 for key in ADDED}}


def add(totals, figures):
    for key in ADDED:
        totals[key] += figures[key]
    for kind, count in figures["faults"].items():
        totals["faults"][kind] = totals["faults"].get(kind, 0) + count
    for kind, times in figures["times"].items() if figures["mode"] == "calm" else ():
        histogram = Histogram(totals["times"].get(kind))
        for seconds in times:
            histogram.add(seconds)
        totals["times"][kind] = histogram.plain()
    totals["runs"].append({key: figures[key] for key in (
        "mode", "seed", "seconds", "sigkills", "verdicts", "under_way", "standstill", "load", "wakeup")}
        | {"faults": sum(figures["faults"].values()), "held": not figures["complaints"],
           "rss_slope": median(figures["rss_slopes"]), "descriptor_slope": median(figures["descriptor_slopes"])})
    return totals


def median(values):
    ordered = sorted(values)
    return round(ordered[len(ordered) // 2], 1) if ordered else None


def save(path, totals):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".new")  # so that an end in the middle leaves the old one
    scratch.write_text(json.dumps(totals, indent=1) + "\n")
    scratch.replace(path)
