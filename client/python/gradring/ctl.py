"""gradringctl, for whoever asks the daemon more than the library can."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

from . import world


class Ctl:
    """The program, which asks the daemon of the job that this process is in, else as the environment says. Thread-safe."""

    def __init__(self, program: str | os.PathLike | None = None):
        """`program`: None: as found in PATH."""
        self._program = str(program or shutil.which("gradringctl") or "")

    def ask(self, *words: str, seconds: float = 5) -> Any:
        """What it answers, as tools/schema describes it.

        Raises:
            OSError: there is no such program, or it has no answer; its text is gradringctl's.
            subprocess.TimeoutExpired: none within that time.
        """
        if not self._program:
            raise OSError("there is no gradringctl in PATH")
        told = world.world().runtime_dir if world.is_initialized() else None
        at = ["--runtime-dir", told] if told else []
        done = subprocess.run([self._program, *at, "--json", *words], capture_output=True, text=True, timeout=seconds,
                              stdin=subprocess.DEVNULL, check=False)
        if done.returncode not in (0, 1) or not done.stdout:  # 1: it is unhealthy, and says how
            raise OSError(done.stderr.strip() or f"gradringctl {words[0]} ended with {done.returncode}")
        return json.loads(done.stdout)
