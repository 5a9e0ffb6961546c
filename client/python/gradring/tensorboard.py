"""What the node's daemon tells of a job, for TensorBoard.

    reporter = gradring.tensorboard.Reporter("runs")

in all ranks of a trainer; the lowest of each node then writes, and all figures are of that node.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from .ctl import Ctl
from .world import is_initialized


class Reporter:
    """Asks gradringd every `interval` seconds, on a thread of its own, and writes to FOLDER/gradring/NODE until close()
    or the process ends. Where there is no answer it says so once, in the log "gradring", and goes on asking.

    Scalars: `gradring/ops_per_second`, `ops_open`, `staging_bytes` of the job on this node; of each rank here, as
    `gradring_rank_N/`, `ops_behind` the rank that is furthest, `quiet_seconds` since its last op, `nonfinite` values so
    far, and of a step since the answer before, in milliseconds, `exposed_ms` and `straggler_ms` that it waits for
    gradients and for other ranks, `compute_ms` and `input_ms`, and `late_ms` in the middle one of the steps in which
    others waited for it; of the daemon, with all jobs, as `gradringd/`, `cpu_share`, `rss_bytes`, `sent_bytes_per_second` and
    `received_bytes_per_second` between nodes. Their steps are the number of the answer.

    Args:
        job: name or incarnation; None: the largest running job that this process is in.
        gradringctl: the program to ask with; None: as found in PATH.
    """

    def __init__(self, folder: str | os.PathLike, interval: float = 10.0, *, job: str | None = None,
                 gradringctl: str | os.PathLike | None = None):
        from tensorboard.compat.proto import event_pb2  # where it is not installed, that is better known now

        del event_pb2
        self._folder = Path(folder)
        self._interval = interval
        self._named = job
        self._found: str | None = None
        self._ctl = Ctl(gradringctl)
        self._stop = threading.Event()
        self._complained = False
        self._thread = threading.Thread(target=self._run, name="gradring-tensorboard", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Ends the thread; waits for it for a second at most. May be called twice."""
        self._stop.set()
        self._thread.join(1)
        atexit.unregister(self.close)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _run(self):
        file, before, step = None, None, 0
        try:
            while not self._stop.is_set():
                answer = self._answer()
                if answer is not None and answer.lowest:  # else another rank of this node writes, and may be lost
                    file = file or _EventFile(self._folder / "gradring" / answer.node)
                    file.write(answer.figures(before), step, answer.at)
                    before, step = answer, step + 1
                self._stop.wait(self._interval)
        except Exception as error:  # of the disk, say: a trainer must not end by it
            self._complain(f"{type(error).__name__}: {error}")
        finally:
            if file is not None:
                file.close()

    def _answer(self) -> _Answer | None:
        try:
            status = self._ctl.ask("status")
            name = self._named or self._found
            job = self._ctl.ask("job", name) if name else self._find(status["node"])
            peers = self._ctl.ask("peers")["peers"]
        except (OSError, subprocess.SubprocessError, ValueError, LookupError) as error:
            self._found = None  # it may be a job that is forgotten
            self._complain(str(error))
            return None
        if job is None:
            if is_initialized():
                self._complain("gradringd knows no job with this process by its number, as where that is of another "
                               "PID namespace")
            return None  # else it is not there yet
        over = job["state"] != "running"  # its trainers may be in another by now
        self._found = None if over else job["incarnation"]
        return _Answer(status, job, peers)

    def _find(self, node) -> dict | None:
        """The largest job on this node that this process is in."""
        running = [one for one in self._ctl.ask("jobs")["jobs"] if one["state"] == "running"]
        for one in sorted(running, key=lambda one: -one["size"]):
            job = self._ctl.ask("job", one["incarnation"])
            if any(rank["pid"] == os.getpid() and rank["node"] == node for rank in job["ranks"]):
                return job
        return None

    def _complain(self, why):
        if not self._complained:
            logging.getLogger("gradring").warning("no figures for TensorBoard: %s", why)
        self._complained = True


class _Answer:
    """Of one moment."""

    def __init__(self, status, job, peers):
        self.at = time.time()
        self._clock = time.monotonic()
        self.node: str = status["node"]
        self._status = status
        self._job = job
        self._furthest = max((one["ops_submitted"] for one in job["ranks"]), default=0)
        self._here = [one for one in job["ranks"] if one["node"] == self.node]
        self._rising = {"gradring/ops_per_second": job["ops_completed"],
                        "gradringd/cpu_share": status["cpu_seconds"],
                        "gradringd/sent_bytes_per_second": sum(one["sent_bytes"] for one in peers),
                        "gradringd/received_bytes_per_second": sum(one["received_bytes"] for one in peers)}

    @property
    def lowest(self) -> bool:
        """Whether this process is the first of its node."""
        return bool(self._here) and min(self._here, key=lambda one: one["rank"])["pid"] == os.getpid()

    def figures(self, before: _Answer | None) -> dict[str, float]:
        figures = {"gradring/ops_open": self._job["ops_open"], "gradring/staging_bytes": self._job["staging_bytes"],
                   "gradringd/rss_bytes": self._status["rss_bytes"]}
        for one in self._here:
            name = f"gradring_rank_{one['rank']}"
            figures[f"{name}/ops_behind"] = self._furthest - one["ops_submitted"]
            figures[f"{name}/quiet_seconds"] = one["quiet_seconds"]
            figures[f"{name}/nonfinite"] = one["nonfinite"]
        if before is not None and before._job["incarnation"] == self._job["incarnation"]:
            seconds = max(self._clock - before._clock, 1e-9)
            figures |= self._steps_since(before)
            for name, value in self._rising.items():
                if value >= before._rising[name]:  # else the daemon has been started anew
                    figures[name] = (value - before._rising[name]) / seconds
        return figures

    def _steps_since(self, before: _Answer) -> dict[str, float]:
        known = {one["rank"]: one["steps"] for one in before._here if "steps" in one}
        figures = {}
        for one in self._here:
            steps, earlier = one.get("steps"), known.get(one["rank"])
            count = steps["steps"] - earlier["steps"] if steps and earlier else 0
            if count <= 0:
                continue
            name = f"gradring_rank_{one['rank']}"
            for part in ("exposed", "straggler", "compute", "input"):
                spent = steps["all_seconds"][part] - earlier["all_seconds"][part]
                figures[f"{name}/{part}_ms"] = 1e3 * spent / count
            figures[f"{name}/late_ms"] = 1e3 * steps["late_seconds"]
        return figures


class _EventFile:
    """What TensorBoard reads. Its own EventFileWriter would import TensorFlow, where there is one, into the trainer."""

    def __init__(self, folder: Path):
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event = Event
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
        self._records = RecordWriter(open(folder / name, "wb"))
        self._put(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def write(self, figures: dict[str, float], step: int, at: float) -> None:
        event = self._event(wall_time=at, step=step)
        for name, value in figures.items():
            event.summary.value.add(tag=name, simple_value=value)
        self._put(event)

    def _put(self, event):
        self._records.write(event.SerializeToString())
        self._records.flush()

    def close(self):
        self._records.close()
