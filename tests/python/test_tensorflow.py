"""`import gradring.tensorflow`, on two nodes with two ranks each."""

import importlib.util

import pytest

if importlib.util.find_spec("tensorflow") is None:  # to import it takes longer than the tests of others
    pytest.skip("TensorFlow is not installed: tests/python/requirements-full.txt has it", allow_module_level=True)

CHECKS = 19


def test_ops_gradients_and_trainers(ring):
    """All in one job: to import TensorFlow takes longer than the checks."""
    for said in ring.run("tensorflow_checks", seconds=300):
        assert len(said) == CHECKS
