"""Figures in aligned lines."""

import statistics


def show(head, rows):
    """The first column is words, the others are set to the right."""
    texts = [[str(one) for one in row] for row in (head, *rows)]
    whole = [row for row in texts if len(row) == len(head)]  # one that is shorter says something else in its last column
    widths = [max(len(row[at]) for row in whole) for at in range(len(head))]
    widths[0] = max(len(row[0]) for row in texts)
    for row in texts:
        first, *others = row
        cells = [f"{one:>{width}}" for one, width in zip(others, widths[1:])] if len(row) == len(head) else others
        print("  ".join([f"{first:<{widths[0]}}", *cells]).rstrip())


def in_bytes(size):
    for power, unit in ((20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size >> power} {unit}"
    return f"{size} B"


def spread(values, digits=1):
    """Of rounds: the median, and the least and the most."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def goal(what, holds):
    """A goal is told and fails nothing: figures vary with the machine."""
    print(f"goal: {what}: {'holds' if holds else 'falls short'}")
