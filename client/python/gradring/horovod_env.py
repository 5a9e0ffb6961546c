"""What the variables of Horovod mean to gradring, so that a job that was set up for the one runs with the other."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field

_NO_CYCLE = "the daemon acts on events, it has no cycle"
_ONCE_PER_NODE = "a node's daemon sends once for all of its ranks, in any case"
_TUNING = "gradringd tunes while jobs run, where its option tuning is auto"
_LOG = "gradringd keeps the log, by its option log-level"
_MEETING = "ranks meet through gradringd, without Gloo or MPI"
_SUMS = "the daemon sums where the memory is"

# Behind HOROVOD_: why it needs nothing.
NEEDLESS = {
    "FUSION_THRESHOLD": "small ops of the same time share messages, by bundle-bytes of gradringd",
    "CYCLE_TIME": _NO_CYCLE,
    "TIMELINE_MARK_CYCLES": _NO_CYCLE,
    "CACHE_CAPACITY": "ops are matched by key, with no negotiation to be cached",
    "HIERARCHICAL_ALLREDUCE": _ONCE_PER_NODE,
    "HIERARCHICAL_ALLGATHER": _ONCE_PER_NODE,
    "TORUS_ALLREDUCE": _ONCE_PER_NODE,
    "AUTOTUNE": _TUNING,
    "AUTOTUNE_LOG": _TUNING,
    "AUTOTUNE_WARMUP_SAMPLES": _TUNING,
    "AUTOTUNE_STEPS_PER_SAMPLE": _TUNING,
    "AUTOTUNE_BAYES_OPT_MAX_SAMPLES": _TUNING,
    "AUTOTUNE_GAUSSIAN_PROCESS_NOISE": _TUNING,
    "STALL_SHUTDOWN_TIME_SECONDS": "op-deadline of gradringd ends an op that some rank never submits",
    "LOG_LEVEL": _LOG,
    "LOG_HIDE_TIME": _LOG,
    "THREAD_AFFINITY": "trainers have no thread of gradring's",
    "NUM_NCCL_STREAMS": "there is no NCCL",
    "GLOO_IFACE": "the network is gradringd's, by its option net-device",
    "CONTROLLER": _MEETING,
    "MPI_THREADS_DISABLE": _MEETING,
    "CPU_OPERATIONS": _SUMS,
    "BATCH_D2D_MEMCOPIES": _SUMS,
    "ADASUM_MPI_CHUNK_SIZE": _SUMS,
    "DISABLE_GROUP_FUSION": "the ops of a group are sent as they are, none is merged with another",
    "ENABLE_ASYNC_COMPLETION": "every op completes by itself",
    "ELASTIC_TIMEOUT": "the ranks that are left go on at once",
}

# Behind HOROVOD_, and behind GRADRING_ as well.
_PLACES = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")


@dataclass(frozen=True)
class Settings:
    """What the variables of Horovod say. None: nothing.

    Attributes:
        rank, size, local_rank, local_size, cross_rank, cross_size: the place; None where gradring is told it in its own
            words, or not at all.
        timeline: the file to write.
        elastic: whether the job is to go on when ranks are lost.
        dynamic_process_sets: whether process sets may be added later, which with gradring they may in any case.
        join_timeout: seconds to wait for all ranks.
        variables: of gradring, which say the same and are not set yet.
        warning: one line about the variables that are set and need nothing, and why they do not.
    """

    rank: int | None = None
    size: int | None = None
    local_rank: int | None = None
    local_size: int | None = None
    cross_rank: int | None = None
    cross_size: int | None = None
    timeline: str | None = None
    elastic: bool = False
    dynamic_process_sets: bool = False
    join_timeout: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    warning: str | None = None


def read(environ: Mapping[str, str]) -> Settings:
    """Reads `environ` and changes nothing. ValueError names a variable that makes no sense."""
    place = {} if _is_told_another_place(environ) else {
        name.lower(): _number(environ, name) for name in (*_PLACES, "CROSS_RANK", "CROSS_SIZE")}
    timeline = environ.get("HOROVOD_TIMELINE") or None
    if timeline == "DYNAMIC":  # to be started by the script, later
        timeline = None
    elastic = _flag(environ, "ELASTIC")
    # Each default is half a minute and for the start of a job; the first is what people raise.
    join_timeout = _number(environ, "START_TIMEOUT") or _number(environ, "GLOO_TIMEOUT_SECONDS")

    wanted = {f"GRADRING_{name}": place.get(name.lower()) for name in _PLACES}
    wanted["GRADRING_JOB"] = _job(environ) if place.get("rank") is not None else None
    wanted["GRADRING_TIMELINE"] = timeline
    wanted["GRADRING_POLICY"] = "elastic" if elastic else None
    wanted["GRADRING_JOIN_TIMEOUT"] = join_timeout
    wanted["GRADRING_STALL_WARNING"] = 0 if _flag(environ, "STALL_CHECK_DISABLE") else _number(environ, "STALL_CHECK_TIME_SECONDS")
    return Settings(**place, timeline=timeline, elastic=elastic,
                    dynamic_process_sets=_flag(environ, "DYNAMIC_PROCESS_SETS"), join_timeout=join_timeout,
                    variables={name: str(value) for name, value in wanted.items()
                               if value is not None and not environ.get(name)},
                    warning=_warning(environ))


_warned = False


def apply(environ: MutableMapping[str, str] = os.environ) -> Settings:
    """Sets gradring's variables from Horovod's, and warns of those that need nothing, once in a process's life."""
    global _warned
    settings = read(environ)
    environ.update(settings.variables)
    if settings.warning and not _warned:
        _warned = True
        warnings.warn(settings.warning, stacklevel=2)
    return settings


def _is_told_another_place(environ):
    """In gradring's words or torchrun's. Half of one launch and half of another would be no place at all."""
    return any(environ.get(name) for name in ("RANK", "WORLD_SIZE")) or any(
        environ.get(f"GRADRING_{name}") not in (None, "", environ.get(f"HOROVOD_{name}")) for name in _PLACES)


def _number(environ, name):
    """None: not set. 0 is a number: where it is a time, it is none."""
    text = environ.get(f"HOROVOD_{name}", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"HOROVOD_{name} is {text!r}, which is not a number from 0 on: correct it, or unset it")
    return int(text)


def _flag(environ, name):
    return environ.get(f"HOROVOD_{name}", "").strip().lower() not in ("", "0", "false", "no", "off")


def _job(environ):
    """A name that all ranks of a horovodrun know, and no other launch has."""
    if environ.get("GRADRING_RANK"):
        return None  # somebody else places the ranks, and names their job
    address, port = (environ.get(f"HOROVOD_GLOO_RENDEZVOUS_{part}") for part in ("ADDR", "PORT"))
    return f"horovod-{address}:{port}" if address and port else None


def _warning(environ):
    by_reason = {}
    for name, reason in NEEDLESS.items():
        if environ.get(f"HOROVOD_{name}"):
            by_reason.setdefault(reason, []).append(f"HOROVOD_{name}")
    told = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())
    return f"not needed with gradring: {told}" if told else None
