"""Horovod over the distribution's Open MPI."""

import os
import subprocess

import cluster as testbed

from .contestant import HERE, python_of
from .mpi import OpenMpi

RELEASE = "0.28.1"
PACKAGES = ("torch==2.13.0", "numpy", "cloudpickle", "psutil", "pyyaml", "packaging", "setuptools<80", "wheel")
# What is there is for PyTorch on processors alone, with MPI.
BUILD = {"HOROVOD_WITH_PYTORCH": "1", "HOROVOD_WITH_MPI": "1", "HOROVOD_CPU_OPERATIONS": "MPI",
         "HOROVOD_WITHOUT_GLOO": "1", "HOROVOD_WITHOUT_TENSORFLOW": "1", "HOROVOD_WITHOUT_MXNET": "1"}


class Horovod(OpenMpi):
    """Its last release, of 2023, asks for an older C++ than PyTorch of today takes: that one number is changed."""

    def prepare(self, context):
        super().prepare(context)  # finds the launcher
        python = python_of(context, "horovod", *PACKAGES)
        if subprocess.run([python, "-c", "import horovod.torch"], capture_output=True, check=False).returncode != 0:
            self._build(context.environment("horovod"), python)
        self.command = [python, HERE / "ranks/horovod_torch.py", context.library]

    def _build(self, folder, python):
        print(f"compiling horovod {RELEASE}, which takes some minutes ...", flush=True)
        pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check")
        testbed.run(*pip, "download", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", folder,
                    f"horovod=={RELEASE}", seconds=600)
        testbed.run("tar", "xzf", folder / f"horovod-{RELEASE}.tar.gz", "-C", folder, seconds=60)
        source = folder / f"horovod-{RELEASE}"
        for lists in (source / "CMakeLists.txt", source / "horovod/torch/CMakeLists.txt"):
            text = lists.read_text(encoding="utf-8")
            lists.write_text(text.replace("CMAKE_CXX_STANDARD 14", "CMAKE_CXX_STANDARD 20"), encoding="utf-8")
        done = subprocess.run([*pip, "install", "--no-deps", "--no-build-isolation", source], capture_output=True, text=True,
                              timeout=3000, check=False, env={**os.environ, **BUILD})
        if done.returncode != 0:
            raise OSError(f"pip install horovod=={RELEASE}: {done.stderr.strip()[-400:]}")

    def version(self, _context):
        return f"horovod {RELEASE}"
