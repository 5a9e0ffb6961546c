"""A curve in plain characters."""

import math

WIDTH, HEIGHT = 68, 12


def chart(values, width=WIDTH, height=HEIGHT):
    """Positive values over their index, on a logarithmic scale; neighbours share a column as their mean."""
    if not values:
        return "  (no values)"
    width = min(width, len(values))
    columns = [values[len(values) * i // width:len(values) * (i + 1) // width] for i in range(width)]
    logs = [math.log10(max(sum(column) / len(column), 1e-12)) for column in columns]
    low, high = min(logs), max(logs)
    step = max(high - low, 0.1) / (height - 1)  # a flat curve is a line, not noise made large
    rows = []
    for row in range(height - 1, -1, -1):
        marks = "".join("*" if round((value - low) / step) == row else " " for value in logs)
        rows.append(f"  {10 ** (low + row * step):8.4f} |{marks}".rstrip())
    rows.append("           +" + "-" * width)
    rows.append(f"            {0:<{width - 6}}{len(values) - 1:>6}")
    return "\n".join(rows)
