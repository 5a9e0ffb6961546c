"""Tensors on devices go by way of the host. The device is one that tests make themselves: no GPU is needed."""

import pytest
from torch.utils import backend_registration


@pytest.mark.skipif(not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
                    reason="this PyTorch makes no devices in Python; 2.13 does")
def test_ops_on_tensors_of_a_device(ring):
    for said in ring.run("devices"):
        assert len(said) == 7
