"""Into a job and out of it."""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import uuid
from pathlib import Path

from . import _native, horovod_env, stalls, timeline
from . import process_sets as sets
from .deadline import checked
from .world import World, enter, is_elastic, is_initialized, rank, world

_lock = threading.RLock()  # a signal's handler may call shutdown() while its thread is in init()
_lives = 0  # how often this process was in a job
_runtime_dir: str | None = None  # of the daemon that the last init() was told


def init(comm=None, process_sets=None, *, runtime_dir: str | None = None, job: str | None = None,
         policy: str | None = None, wire: str | None = None, timeout: float = 0):
    """Joins the job that the environment names (gradring-run, torchrun, srun, mpirun); without any, one of this
    process alone. Returns when all ranks are there; does nothing if this process is in a job already.

    Args:
        comm: an mpi4py communicator, whose ranks are the job's; or a list of ranks of the environment's job, which
            alone are in this one; or a list of either, of which the first has all ranks and others become process sets.
        process_sets: a list of ProcessSet, in the same order on all ranks. "dynamic" is allowed, and needs nothing.
        runtime_dir, job, policy, wire: of gradring_options; None: as the environment says.
        timeout: seconds to wait for all ranks; 0: the daemon's form-deadline.
    Raises:
        GradringError: no daemon, ranks that are missing, or claims that contradict one another, also of process sets.
        ValueError: process sets of ranks that there are not, or of equal ranks, or in an elastic job that runs already.
            There is no job then.
    """
    global _lives, _runtime_dir
    with _lock:
        if is_initialized():
            return
        horovod_env.apply()
        stalls.watch()
        comms = list(comm) if isinstance(comm, (list, tuple)) and comm and not isinstance(comm[0], int) else [comm]
        options = _options(comms[0])
        for name, value in (("runtime_dir", runtime_dir), ("job", job), ("policy", policy), ("wire", wire)):
            if value is not None:
                options[name] = value
        if seconds := checked(timeout, "init(timeout={})"):
            options["join_timeout_ms"] = math.ceil(1000 * seconds)  # of which 0 would be the daemon's
        elastic = is_elastic(options.get("policy") or _native.told()["policy"])
        opened = _native.open(**options)
        _lives += 1  # not before: a rank that tries again after an error names the life that the others are at
        _runtime_dir = runtime_dir
        enter(World(opened, elastic, runtime_dir))
    try:
        sets.start(list(process_sets) if process_sets and process_sets != "dynamic" else [], comms[1:])
    except BaseException:
        shutdown()  # so that it may be called again, with others
        raise
    timeline.begin(rank())


def shutdown() -> None:
    """Leaves the job. Ops that others wait for must have been submitted; what is still under way fails here, and arrays
    stay as they are. Does nothing outside of a job, nor where a signal's handler calls it during init()."""
    timeline.end()
    with _lock:
        sets.stop()
        if is_initialized():
            left = world().job
            enter(None)
            left.leave()  # arrays in its memory and handles, if there are any, keep it open


atexit.register(shutdown)


def init_beside(job: str) -> None:
    """Joins another job, of policy fail, at the daemon at which this process was last."""
    init(job=job, policy="fail", runtime_dir=_runtime_dir)


def _options(comm) -> dict:
    if comm is not None and hasattr(comm, "Get_rank"):
        return _of_mpi(comm)
    told = _native.told()
    options: dict = {}
    if told["rank"] is None and told["size"] is None:
        # A notebook, or a script that nobody launched: a job of one.
        told |= {"rank": 0, "size": 1, "job": f"{_script()}-{os.getpid()}"}
        options = {"rank": 0, "size": 1, "local_rank": 0, "local_size": 1, "job": told["job"]}
    if comm:
        ranks = sorted(set(comm))
        if told["rank"] not in ranks:
            raise ValueError(f"gradring: rank {told['rank']} calls init(comm={ranks}), which it is not in")
        name = f"{told['job'] or _script()}[{','.join(map(str, ranks))}]"
        options |= {"rank": ranks.index(told["rank"]), "size": len(ranks), "job": name}
    if _lives:  # an earlier life in the same job may not have ended everywhere
        options["token"] = f"{told['token']}#{_lives}"
    return options


def _of_mpi(comm) -> dict:
    """Ranks as an mpi4py communicator has them; its rank 0 makes up the name."""
    mine = comm.Get_rank()
    agreed = f"{_native.told()['job'] or _script()}\n{uuid.uuid4().hex}" if mine == 0 else None
    name, token = comm.bcast(agreed, root=0).split("\n")
    return {"rank": mine, "size": comm.Get_size(), "job": name, "token": token}


def _script() -> str:
    return Path(sys.argv[0] if sys.argv else "").stem.lstrip("-") or "python"
