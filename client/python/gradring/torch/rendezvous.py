"""How a process group finds its job: through the environment, or through the group's store."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path

from .. import _native, stalls, timeline
from .process_group import ProcessGroup

# torch's default group, while it is gradring's: other groups are made from its job.
_world: ProcessGroup | None = None


def create(options, backend_options=None):
    """What torch.distributed calls for each group that this rank is in."""
    global _world
    ranks = list(options.global_ranks_in_group)  # none: the default group
    if ranks and _world is not None and _world.is_open:
        # torch's 30 minutes, unless new_group() says less, also where ranks of the default group are waited for a minute.
        seconds = min(options.timeout.total_seconds(), _world.timeout)
        return ProcessGroup(_world.job.group(ranks, int(seconds * 1000)), options.timeout, options.group_id)
    if ranks:
        return ProcessGroup(_open(options), options.timeout, options.group_id)
    _world = ProcessGroup(_open(options), options.timeout, options.group_id, at_shutdown=timeline.end)
    timeline.begin(options.group_rank)
    return _world


def _open(options):
    stalls.watch()
    store, rank = options.store, options.group_rank
    # A store may outlive its groups, and the next one of the same name is another. Each rank counts those that it was in: one that
    # tries again after an error is still at the one that the others are at.
    lives = f"gradring/lives/{rank}"
    name, token = _agree_on_name(store, f"gradring/job/{store.add(lives, 0)}", rank)
    # Whatever policy the launch has: torch knows no join points, and with fewer ranks its sums and averages would be wrong.
    job = _native.open(rank=rank, size=options.group_size, job=name, token=token, policy="fail",
                       join_timeout_ms=int(options.timeout.total_seconds() * 1000), ranks=list(options.global_ranks_in_group))
    store.add(lives, 1)
    return job


def _agree_on_name(store, key, rank):
    """The name is for people, and may be that of an earlier run; the token is this group's alone."""
    if rank == 0:  # who may have told it already, and failed then
        store.compare_set(key, "", f"{_name_for_people()}\n{uuid.uuid4().hex}")
    name, _, token = store.get(key).decode().rpartition("\n")
    return name, token


def _name_for_people():
    step = os.environ.get("SLURM_STEP_ID")
    for variable in ("GRADRING_JOB", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"):
        value = os.environ.get(variable, "")
        if value and value != "none":
            return f"{value}.{step}" if variable == "SLURM_JOB_ID" and step else value
    script = Path(sys.argv[0] if sys.argv else "").stem
    return script or "torch"
