"""How long a trainer waits for its input."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from . import _native

T = TypeVar("T")


def batches(loader: Iterable[T]) -> Iterator[T]:
    """What the loader gives; the daemon is told how long that took, and `gradringctl job` shows it apart from computing.

        for images, labels in gradring.batches(loader): ...

    Args:
        loader: anything to go through, such as torch's DataLoader or a tf.data.Dataset.
    """
    source = iter(loader)
    while True:
        began = time.perf_counter_ns()
        try:
            batch = next(source)
        except StopIteration:
            return
        _native.waited_for_input(time.perf_counter_ns() - began)
        yield batch
