"""How a process group finds its job: through the environment, or through the group's store."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path

from .. import _native
from .process_group import ProcessGroup

# The communicators whose ranks are those of torch's default group, by the store that made them; groups
# are made from the newest.
_roots: list[ProcessGroup] = []


def create(options, backend_options=None):
    """What torch.distributed calls for each group that this rank is in."""
    ranks = list(options.global_ranks_in_group)
    root = next((one for one in reversed(_roots) if one.is_open), None)
    if root is None or not ranks:
        group = ProcessGroup(_open(options), options.timeout, options.group_id)
        if not ranks:
            _roots[:] = [one for one in _roots if one.is_open] + [group]
        return group
    return ProcessGroup(root.job.group(ranks), options.timeout, options.group_id)


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
    for variable in ("GRADRING_JOB", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"):
        value = os.environ.get(variable, "")
        if value and value != "none":
            return value
    script = Path(sys.argv[0] if sys.argv else "").stem
    return script or "torch"
