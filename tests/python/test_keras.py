"""`import gradring.keras`, on two nodes with one rank each."""

import importlib.util
import os
import subprocess
import sys

import pytest

if importlib.util.find_spec("keras") is None or importlib.util.find_spec("tensorflow") is None:
    pytest.skip("Keras is not installed: tests/python/requirements-full.txt has it", allow_module_level=True)

CHECKS = 18
OF_OTHERS = ["fits_as_one_process_would", "gradients_in_groups", "overflow_of_one_rank", "local_layers", "callbacks",
             "ranks_drop_units_of_their_own", "an_optimizer_is_taken_over_whole", "steps_count_the_ranks_that_there_are",
             "a_state_is_kept_in_the_midst_of_an_epoch", "momentum_without_the_rate_is_left_alone", "sparse_gradients"]


def test_models_train_together_as_one_process_would(ring):
    """All in one job: to import TensorFlow takes longer than the checks."""
    for said in ring.run("keras_checks", per_node=1, seconds=300):
        assert len(said) == CHECKS


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_so_they_do_with_other_backends(ring, backend, monkeypatch):
    pytest.importorskip(backend)
    monkeypatch.setenv("KERAS_BACKEND", backend)
    for said in ring.run("keras_checks", *OF_OTHERS, per_node=1, seconds=300):
        assert [one["ok"] for one in said] == OF_OTHERS


def test_a_model_that_normalizes_over_all_ranks_is_loaded_where_nobody_has_named_its_layer_before(tmp_path):
    make = ("import sys, keras, gradring.tensorflow as hvd\n"
            "keras.Sequential([keras.Input((3,)), hvd.SyncBatchNormalization()]).save(sys.argv[1])\n"
            "keras.models.load_model(sys.argv[1])")
    load = "import sys, gradring.keras; print(type(gradring.keras.load_model(sys.argv[1]).layers[0]).__name__)"
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": "-1"}
    for script in (make, load):
        done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "model.keras")], capture_output=True, text=True,
                              timeout=120, env=environment)
        assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["SyncBatchNormalization"]
