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

try:
    from cloudpickle import dumps  # has functions of scripts and notebooks, by value
except ImportError:
    from pickle import dumps

PAYLOAD_MAX = 96 << 10  # a word of a command line holds no more than 128 KiB


def run(func: Callable[..., Any], args: Sequence = (), kwargs: Mapping[str, Any] | None = None, np: int = 1,
        hosts: str | None = None, *, num_proc: int | None = None, env: Mapping[str, str] | None = None,
        executable: str | None = None, flags: Sequence[str] = ()) -> list:
    """What `func(*args, **kwargs)` returns on each of `np` ranks, in their order.

    Args:
        func: may call gradring.init(). Functions of the script itself, or of a notebook, need the package cloudpickle.
        np, num_proc: how many ranks; two names of the same.
        hosts: "HOST:N,HOST:N", as gradring-run's -H; None: all here. Rank 0 has to be here.
        env: variables to set beside those that there are.
        executable: the Python to use; None: this one, which has to lie at the same path on all hosts.
        flags: more of gradring-run's, such as ["--runtime-dir", "/run/gradring"].
    Raises:
        RuntimeError: the function raised on a rank, whose number and traceback are in the text; or a rank ended.
        FileNotFoundError: gradring-run is not in PATH, nor named by GRADRING_RUN.
    """
    payload = base64.b64encode(dumps((func, tuple(args), dict(kwargs or {})))).decode()
    if len(payload) > PAYLOAD_MAX:
        raise ValueError(f"gradring: the function and its arguments are {len(payload) >> 10} KiB when pickled, and "
                         f"{PAYLOAD_MAX >> 10} KiB can go along: let the function read its data itself")
    with tempfile.TemporaryDirectory(prefix="gradring-run-") as folder:
        results = Path(folder) / "results"
        # Results are handed over in a file of this host, where srun may start no rank.
        command = [_program(), "--launcher", "ssh", "-np", str(num_proc or np), *(["-H", hosts] if hosts else []),
                   *flags, executable or sys.executable, "-m", "gradring.launched", str(results), payload]
        done = subprocess.run(command, env={**os.environ, **(env or {})}, check=False)
        if not results.exists():
            raise RuntimeError(f"gradring: the function did not end on all ranks: gradring-run ended with "
                               f"{done.returncode}, and its output, above, says which rank failed")
        outcomes = pickle.loads(results.read_bytes())
    for rank, (value, traceback) in enumerate(outcomes):
        if traceback is not None:
            raise RuntimeError(f"gradring: the function raised on rank {rank}:\n{traceback}")
    return [value for value, _ in outcomes]


def _program() -> str:
    program = os.environ.get("GRADRING_RUN") or shutil.which("gradring-run")
    if not program:
        raise FileNotFoundError("gradring: gradring-run is not in PATH; it is one of gradring's programs, see "
                                "README.md; or let GRADRING_RUN name it")
    return program
