"""Random ops, of all ranks or some, on any tensors: their results are those that NumPy computes of all inputs."""

import importlib.util
import os

import pytest

SEED = int.from_bytes(os.urandom(3), "big")


@pytest.mark.parametrize(("libraries", "steps"), [("numpy torch", 400), ("tensorflow", 400), ("jax", 100)])
def test_results_are_numpys(ring, libraries, steps):
    for name in libraries.split():
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}")
    print("seed", SEED)
    for said in ring.run("random_ops", str(SEED), str(steps), *libraries.split()):
        assert said == [{"steps": steps}]
