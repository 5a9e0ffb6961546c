"""How a process group finds its job: through the environment, or through the group's store."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path

from .. import _native, timeline
from .process_group import ProcessGroup

# torch's default group, while it is gradring's: other groups are made from its job.
_world: ProcessGroup | None = None


def create(options, backend_options=None):
    """What torch.distributed calls for each group that this rank is in."""
    global _world
    ranks = list(options.global_ranks_in_group)  # none: the default group
    if ranks and _world is not None and _world.is_open:
        return ProcessGroup(_world.job.group(ranks), options.timeout, options.group_id)
    if ranks:
        return ProcessGroup(_open(options), options.timeout, options.group_id)
    _world = ProcessGroup(_open(options), options.timeout, options.group_id, at_shutdown=timeline.end)
    timeline.begin(options.group_rank)
    return _world


def _open(options):
    name, token = _agree_on_name(options.store, options.group_rank)
    return _native.open(rank=options.group_rank, size=options.group_size, job=name, token=token,
                        join_timeout_ms=int(options.timeout.total_seconds() * 1000))


def _agree_on_name(store, rank):
    """The name is for people, and may be that of an earlier run; the token is this group's alone."""
    if rank == 0:
        store.set("gradring/job", f"{_name_for_people()}\n{uuid.uuid4().hex}")
    name, _, token = store.get("gradring/job").decode().rpartition("\n")
    return name, token


def _name_for_people():
    step = os.environ.get("SLURM_STEP_ID")
    for variable in ("GRADRING_JOB", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"):
        value = os.environ.get(variable, "")
        if value and value != "none":
            return f"{value}.{step}" if variable == "SLURM_JOB_ID" and step else value
    script = Path(sys.argv[0] if sys.argv else "").stem
    return script or "torch"
