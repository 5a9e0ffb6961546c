"""A file that shows what all ranks and daemons did, for Perfetto: Horovod's timeline, by `gradringctl trace`."""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import threading

from . import world
from .ctl import Ctl

_READING = 300  # seconds that the reading of a long trace may take
_lock = threading.RLock()  # a signal's handler may call shutdown() meanwhile
_file: str | None = None


def start_timeline(file_path: str | os.PathLike, mark_cycles: bool = False) -> None:
    """From now on, until stop_timeline() or shutdown(), for all ranks and nodes; rank 0 writes the file at the end.
    Nothing on other ranks, and where one was started already.

    Args:
        file_path: on rank 0's node; written anew.
        mark_cycles: has no effect: there are no cycles.
    Raises:
        OSError: there is no gradringctl in PATH, no file can be written there, or the daemon refuses, as it does where jobs of
            others are on the node.
    """
    del mark_cycles
    if world.rank() == 0:
        _start(file_path)


def _start(file_path):
    global _file
    with _lock:
        if _file is None:
            file = os.path.abspath(file_path)
            _look_at(file)
            _warn_of(Ctl().ask("trace", "start"))
            _file = file


def _look_at(file):
    """Better now than after hours of training."""
    if os.path.isdir(file):
        raise OSError(f"cannot write {file}: it is a folder; name a file in it")
    if not os.access(file if os.path.exists(file) else os.path.dirname(file), os.W_OK):
        raise OSError(f"cannot write {file}")


def stop_timeline() -> None:
    """Writes the file. Does nothing where none was started.

    Raises:
        OSError: it cannot be written, or the daemon does not answer.
    """
    global _file
    with _lock:
        file, _file = _file, None
        if file is not None:
            _warn_of(Ctl().ask("trace", "stop", "-o", file, seconds=_READING))


def begin(rank: int) -> None:
    """What GRADRING_TIMELINE asks for, of a job's rank 0. A job must not fail for want of a picture: the log "gradring"
    says why there is none."""
    file = os.environ.get("GRADRING_TIMELINE")
    if file and rank == 0:
        _or_say(lambda: _start(file))


def end() -> None:
    """The same, when the job is left."""
    _or_say(stop_timeline)


atexit.register(end)


def _leave_to_the_parent():
    """A forked child runs what is registered for the end as well: it must not end the trace that its parent is in."""
    global _lock, _file
    _lock, _file = threading.RLock(), None  # another thread may have held it


os.register_at_fork(after_in_child=_leave_to_the_parent)


def _warn_of(answer) -> None:
    """Of what is missing in the file: nodes that do not answer, events that were overwritten, or all since somebody else
    ended the trace."""
    for problem in answer.get("problems", []):
        logging.getLogger("gradring").warning("timeline: %s", problem)


def _or_say(work) -> None:
    try:
        work()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        logging.getLogger("gradring").warning("no timeline: %s", error)
