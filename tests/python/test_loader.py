"""How the part in C++ is loaded."""

import os
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_another_allocator_may_be_preloaded(tmp_path):
    """As trainers' often are: jemalloc, tcmalloc."""
    library = tmp_path / "own_malloc.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-fno-builtin", "-o", library, ROOT / "tests/python/own_malloc.c"], check=True)
    done = subprocess.run([sys.executable, "-c", "import gradring; print(gradring.version())"], check=False, text=True, timeout=60,
                          env={**os.environ, "LD_PRELOAD": str(library)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("words", ["import gradring.torch", "from gradring.torch.elastic import run"])
def test_pytorch_is_loaded_before_our_part_in_cpp(words):
    pytest.importorskip("torch", reason="needs PyTorch")
    look = "import sys; order = list(sys.modules); print(order.index('torch') < order.index('gradring._native'))"
    done = subprocess.run([sys.executable, "-c", f"{words}\n{look}"], check=True, text=True, timeout=60, stdout=subprocess.PIPE)
    assert done.stdout.strip() == "True"


def test_pytorch_is_not_loaded_for_others():
    done = subprocess.run([sys.executable, "-c", "import gradring, sys; print('torch' in sys.modules)"], check=True, text=True,
                          timeout=60, stdout=subprocess.PIPE)
    assert done.stdout.strip() == "False"
