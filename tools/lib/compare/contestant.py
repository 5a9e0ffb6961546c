"""What every contestant is, and how programs and packages for it are had."""

import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import cluster as testbed

HERE = Path(__file__).resolve().parent
COMPILE = ["-O3", "-march=native", "-Wall", "-Wextra"]


@dataclass
class Context:
    """Where things are."""
    root: Path
    folder: Path  # of what is built here: build/compare
    programs: Path

    @property
    def library(self):
        return self.folder / "libbench.so"

    def environment(self, name):
        """A virtual environment."""
        return self.folder / "environments" / name


def compiled(context, name, compiler, sources, *flags):
    target = context.folder / name
    testbed.run(*compiler, *COMPILE, f"-I{context.root}", "-o", target,
                *[HERE / "ranks" / source for source in sources], *flags, seconds=60)
    return target


def compile_library(context):
    return compiled(context, "libbench.so", ["cc"], ["bench.c"], "-shared", "-fPIC")


@dataclass
class Contestant:
    name: str
    explains: str  # what it is, and its settings
    bytes_sent = 1  # of what sending float32 takes
    quick: bool = True
    command: list = field(default_factory=list)

    def prepare(self, context):
        """Installs and compiles; raises with the reason where that cannot be."""

    def version(self, _context):
        return ""

    def why_not(self, _scenario):
        """Why it would be unfair to measure it here; None where it is not."""
        return None

    def start(self, ring, scenario, board, most):
        """The processes, which find their ranks by themselves. `most`: bytes of the largest buffer."""
        raise NotImplementedError

    def daemons(self, _ring):
        """Pids of others than the ranks that work for it."""
        return []

    def spawn(self, ring, name, command, environment=None, node=None):
        process = testbed.Process(f"{self.name}-{name}", command, ring.folder, ring.mark, environment,
                                  node.prefix if node else ())
        ring.processes.append(process)
        return process


def python_of(context, name, *packages):
    """The interpreter of a virtual environment that has these packages."""
    folder = context.environment(name)
    python = folder / "bin/python"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        print(f"installing {' '.join(packages)} ...", flush=True)
        testbed.run(sys.executable, "-m", "venv", folder, seconds=120)
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], capture_output=True, text=True,
                              timeout=1800, check=False)
        if done.returncode != 0:
            raise OSError(f"pip install {' '.join(packages)}: {done.stderr.strip()[-400:]}")
        (folder / "complete").touch()
    return python
