"""Runs a function on many ranks, from a script or a notebook."""

from __future__ import annotations

import base64
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from .pickling import by_value, dumps

# What Horovod's run() takes beside, as flags of gradring-run, which says which of them it has no need of.
SWITCHES = {"disable_cache": "--disable-cache", "use_gloo": "--gloo", "use_mpi": "--mpi", "verbose": "--verbose"}
FLAGS = {"cooldown_range": "--blacklist-cooldown-range", "host_discovery_script": "--host-discovery-script",
         "hostfile": "--hostfile", "max_np": "--max-np", "max_num_proc": "--max-np", "min_np": "--min-np",
         "min_num_proc": "--min-np", "mpi_args": "--mpi-args", "network_interface": "--network-interfaces",
         "network_interfaces": "--network-interfaces", "output_filename": "--output-filename",
         "reset_limit": "--reset-limit", "slots": "--slots-per-host", "ssh_identity_file": "--ssh-identity-file",
         "ssh_port": "--ssh-port", "start_timeout": "--start-timeout"}

PAYLOAD_MAX = 96 << 10  # a word of a command line holds no more than 128 KiB


def run(func: Callable[..., Any], args: Sequence = (), kwargs: Mapping[str, Any] | None = None, np: int | None = None,
        hosts: str | None = None, *, num_proc: int | None = None, env: Mapping[str, str] | None = None,
        executable: str | None = None, flags: Sequence[str] = (), **horovods: Any) -> list:
    """What `func(*args, **kwargs)` returns on each of `np` ranks, in their order; with `min_np`, where some were lost, on
    each of those that are left.

    Args:
        func: may call gradring.init(). Functions of the script itself, or of a notebook, need the package cloudpickle.
        np, num_proc: how many ranks; two names of the same. None: one.
        hosts: "HOST:N,HOST:N", as gradring-run's -H; None: all here. Rank 0 has to be here.
        env: variables to set beside those that there are, on all hosts.
        executable: the Python to use; None: this one, which has to lie at the same path on all hosts.
        flags: more of gradring-run's, such as ["--runtime-dir", "/run/gradring"].
        horovods: what Horovod's takes beside, such as `use_gloo` and `start_timeout`: docs/migrate-horovod.md says of
            each flag of that name what becomes of it.
    Raises:
        ValueError: the function or `env` cannot be handed to the ranks, or `np` or `hosts` name none, and why.
        RuntimeError: the function raised on a rank, whose number and traceback are in the text; or a rank ended; or what it
            returned cannot be unpickled.
        FileNotFoundError: gradring-run is not in PATH, nor named by GRADRING_RUN.
    """
    ranks = _one_of(np, num_proc)
    _check_places(ranks, hosts)
    _check(env or {})
    more = [word for name, value in horovods.items() for word in _flag(name, value)]
    if not by_value() and getattr(func, "__module__", None) == "__main__":
        raise ValueError(f"gradring: {getattr(func, '__qualname__', func)} is a function of the script itself, which the ranks "
                         f"do not have: pip install cloudpickle, or put it into a module")
    # Ranks look for modules where this script does, which may lie in another folder than this one.
    folders = [os.path.abspath(folder) for folder in sys.path]
    payload = base64.b64encode(pickle.dumps((folders, dumps((func, tuple(args), dict(kwargs or {})))))).decode()
    if len(payload) > PAYLOAD_MAX:
        raise ValueError(f"gradring: the function and its arguments are {len(payload) >> 10} KiB when pickled, and "
                         f"{PAYLOAD_MAX >> 10} KiB can go along: let the function read its data itself")
    with tempfile.TemporaryDirectory(prefix="gradring-run-") as folder:
        results = Path(folder) / "results"
        # Results are handed over in a file of this host, where srun may start no rank.
        command = [_program(), "--launcher", "ssh", "--attended", "-np", str(1 if ranks is None else ranks),
                   *([] if hosts is None else ["-H", hosts]), *more, *(word for name in env or {} for word in ("-x", name)), *flags,
                   executable or sys.executable, "-m", "gradring.launched", str(results), payload]
        exit_code = _wait_for(command, {**os.environ, **(env or {})})
        if not results.exists():
            raise RuntimeError(f"gradring: the function did not end on all ranks: gradring-run ended with "
                               f"{exit_code}, and its output, above, says why")
        outcomes = pickle.loads(results.read_bytes())
    # First what is of no op or job that failed: those fail for what happened elsewhere.
    for rank, (_, traceback, _) in sorted(enumerate(outcomes), key=lambda one: one[1][2]):
        if traceback is not None:
            raise RuntimeError(f"gradring: the function raised on rank {rank}:\n{traceback}")
    return [_returned(rank, value) for rank, (value, _, _) in enumerate(outcomes)]


def _returned(rank: int, pickled: bytes) -> Any:
    try:
        return pickle.loads(pickled)
    except Exception as error:  # as of an exception whose __init__ wants other words than its args
        raise RuntimeError(f"gradring: what the function returned on rank {rank} cannot be unpickled: "
                           f"{type(error).__name__}: {error}") from error


def _wait_for(command: list[str], env: Mapping[str, str]) -> int:
    """Its exit code. It ends its ranks when its standard input ends: also where this process is killed."""
    launcher = subprocess.Popen(command, env=env, stdin=subprocess.PIPE)
    try:
        return launcher.wait()
    finally:
        launcher.stdin.close()
        launcher.wait()  # after Ctrl-C it gives the ranks time to end


def _one_of(np: int | None, num_proc: int | None) -> int | None:
    if np is not None and num_proc is not None and np != num_proc:
        raise ValueError(f"gradring: np is {np} and num_proc {num_proc}, which are two names of the same: give one of them")
    return np if num_proc is None else num_proc


def _check_places(ranks: int | None, hosts: str | None) -> None:
    """Here, as gradring-run's exit code would not say which argument it was."""
    if ranks is not None and not (hasattr(ranks, "__index__") and ranks >= 1):
        raise ValueError(f"gradring: np is {ranks!r}, and run() takes a whole number of ranks, 1 at least")
    if hosts is not None and not (isinstance(hosts, str) and hosts.strip()):
        raise ValueError(f"gradring: hosts is {hosts!r}: give text as \"HOST:N,HOST:N\", or None, for all ranks here")


def _check(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ValueError(f"gradring: env has {name!r}, which is no name of a variable")
        if not isinstance(value, str):
            raise ValueError(f"gradring: env has {value!r} as {name}, and a variable is text: say {str(value)!r}")


def _flag(name: str, value: Any) -> list[str]:
    if name not in SWITCHES and name not in FLAGS:
        raise TypeError(f"gradring: run() has no argument {name!r}")
    if value is None or value is False:
        return []
    if name in SWITCHES:
        return [SWITCHES[name]] if value else []
    if name == "cooldown_range":
        return [FLAGS[name], *map(str, value)]
    return [f"{FLAGS[name]}={','.join(value) if isinstance(value, (list, tuple)) else value}"]


def _program() -> str:
    named = os.environ.get("GRADRING_RUN")
    program = shutil.which(named or "gradring-run")
    if program is None and named:
        raise FileNotFoundError(f"gradring: GRADRING_RUN names {named}, which is no program here; let it name gradring-run, "
                                f"or unset it where that is in PATH")
    if program is None:
        raise FileNotFoundError("gradring: gradring-run is not in PATH; it is one of gradring's programs, see "
                                "README.md; or let GRADRING_RUN name it")
    return program
