"""The board on which the ranks of a contestant take orders (ranks/bench.h)."""

import contextlib
import ctypes
import os
import statistics
from dataclasses import dataclass
from pathlib import Path

RANKS, SAMPLES = 64, 32
CHECK, TIME, STOP = 1, 2, 3


class _Rank(ctypes.Structure):
    _fields_ = [("begin", ctypes.c_double * SAMPLES), ("end", ctypes.c_double * SAMPLES), ("cpu", ctypes.c_double),
                ("wrong", ctypes.c_uint64), ("pid", ctypes.c_int64)]


class _Board(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("present", ctypes.c_uint32), ("order", ctypes.c_uint32),
                ("kind", ctypes.c_uint32), ("bytes", ctypes.c_uint64), ("calls", ctypes.c_uint32),
                ("samples", ctypes.c_uint32), ("done", ctypes.c_uint32), ("arrived", ctypes.c_uint32),
                ("phase", ctypes.c_uint32), ("of", _Rank * RANKS)]


class Lost(Exception):
    """The ranks did not do what they were told to."""


@dataclass(frozen=True)
class Taken:
    """Of one measurement, per call."""
    seconds: float       # median of the samples
    rank_cpu: float      # processor seconds of all ranks together
    calls: int           # in all samples


class Board:
    def __init__(self, library, folder, name, ranks):
        self._library = ctypes.CDLL(str(library))
        self._library.bench_create.restype = ctypes.POINTER(_Board)
        # In memory: what is waited for must not be written to a disk.
        self.path = Path("/dev/shm") / f"gradring-compare-{os.getpid()}-{name}"
        self._at = self._library.bench_create(str(self.path).encode(), ctypes.c_uint32(ranks))
        if not self._at:
            raise OSError(f"{self.path} cannot be made")
        self._ranks = ranks

    def close(self):
        self.path.unlink(missing_ok=True)

    def complete(self):
        return bool(self._library.bench_complete(self._at))

    def _carry_out(self, kind, size, calls, samples, seconds, alive):
        """`alive()` raises if the ranks are no more."""
        self._library.bench_give(self._at, kind, ctypes.c_uint64(size), calls, samples)
        for _ in range(int(seconds * 5)):
            if self._library.bench_wait(self._at, 200):
                return
            alive()
        raise Lost(f"no result within {seconds:g} s")

    def check(self, size, seconds, alive):
        """Elements that were wrong, of all ranks."""
        self._carry_out(CHECK, size, 1, 1, seconds, alive)
        return sum(self._at.contents.of[rank].wrong for rank in range(self._ranks))

    def time(self, size, calls, samples, seconds, alive):
        self._carry_out(TIME, size, calls, samples, seconds, alive)
        of = self._at.contents.of
        present = [of[rank] for rank in range(self._ranks) if of[rank].end[0] > 0]
        took = [(max(one.end[i] for one in present) - min(one.begin[i] for one in present)) / calls
                for i in range(samples)]
        return Taken(statistics.median(took), sum(one.cpu for one in present) / (calls * samples), calls * samples)

    def signal(self, number):
        """To all ranks."""
        for rank in range(self._ranks):
            pid = self._at.contents.of[rank].pid
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def stop(self):
        self._library.bench_give(self._at, STOP, ctypes.c_uint64(0), 0, 0)
