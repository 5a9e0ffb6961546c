"""The package of Horovod's module names, and how results of Horovod's own tests are put together."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests/python/conformance"))

from run_horovod import judged, together  # noqa: E402  (found by the line above)

IMPORTS = """
import importlib, warnings
warnings.simplefilter("error")
import horovod, horovod.torch as hvd, gradring.torch
assert hvd.mpi_ops.Sum is hvd.Sum
from horovod.torch.mpi_ops import synchronize
from horovod.torch.compression import Compression
from horovod.common.util import extension_available, gloo_built, num_rank_is_power_2, split_list
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet
assert hvd is gradring.torch and synchronize is gradring.synchronize and Compression is hvd.Compression
assert gradring.torch.__spec__.name == gradring.torch.__name__ == "gradring.torch"
assert importlib.reload(gradring.torch) is hvd
assert HorovodInternalError is gradring.GradringError and ProcessSet is gradring.ProcessSet
assert extension_available("torch") and not extension_available("mxnet") and not gloo_built()
assert split_list([1, 2, 3], 2) == [[1, 2], [3]] and num_rank_is_power_2(4) and not num_rank_is_power_2(6)
assert horovod.init is gradring.init
try:
    import horovod.mxnet
except ModuleNotFoundError as told:
    assert "horovod.mxnet" in str(told)
else:
    raise AssertionError("there is no horovod.mxnet")
"""


def test_horovod_modules_are_gradrings():
    pytest.importorskip("torch")
    path = os.pathsep.join([str(ROOT / "client/python/shim/horovod"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", IMPORTS], env=os.environ | {"PYTHONPATH": path}, capture_output=True,
                          text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def line(test, outcome, why=""):
    return {"test": test, "outcome": outcome, "why": why}


def test_what_failed_on_one_rank_has_failed():
    found = together([[line("a", "passed"), line("b", "skipped", "no GPU"), line("c", "skipped")],
                      [line("a", "failed", "boom"), line("b", "skipped", "no GPU"), line("c", "passed")]])
    assert found == {"a": ("failed", "rank 1: boom"), "b": ("skipped", "no GPU"), "c": ("passed", "")}


def test_what_is_expected_to_differ_and_passes_has_failed():
    assert judged("test_common.py", "test_gloo_built", "passed", "")[0] == "failed"
    assert judged("test_common.py", "test_gloo_built", "failed", "boom")[0] == "not applicable"
    assert judged("test_torch.py", "test_horovod_rank", "failed", "boom") == ("failed", "boom")
    assert judged("test_torch.py", "test_gpu_required", "skipped", "Skipped: no GPU") == ("not applicable", "no GPU")
