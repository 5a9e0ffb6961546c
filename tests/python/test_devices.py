"""Tensors on devices go by way of the host. The devices are ones that tests make themselves: no GPU is needed."""

from pathlib import Path

import pytest
import torch
from torch.utils import backend_registration


makes_devices = pytest.mark.skipif(not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
                                   reason="this PyTorch makes no devices in Python; 2.13 does")


@makes_devices
def test_ops_on_tensors_of_a_device(ring):
    for said in ring.run("devices"):
        assert len(said) == 7


@makes_devices
def test_ops_on_tensors_of_a_device_whose_streams_wait_for_them(ring, pytestconfig):
    driver = Path(pytestconfig.getoption("--programs")).parent / "lib/cuda_twin/libcuda.so.1"
    for said in ring.run("devices", driver):
        assert len(said) == 9


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here, or PyTorch is built without CUDA")
def test_ops_on_tensors_of_a_gpu(ring):
    for said in ring.run("devices", "cuda"):
        assert len(said) == 6
