"""gradring.jax on real daemons."""

import os
import signal
import subprocess
import sys

import pytest
from conftest import reports

import cluster as testbed

pytest.importorskip("jax", reason="needs JAX")

import gradring  # noqa: E402
import gradring.jax  # noqa: E402

OPS = 12
WAYS = ["compiled", "not compiled", "every second step", "differentiated", "large arrays in a row"]


def test_it_has_what_every_front_end_has():
    assert not [name for name in gradring.common.__all__ if not hasattr(gradring.jax, name)]
    assert all(hasattr(gradring.jax, name) for name in gradring.jax.__all__)


def test_it_warns_where_it_comes_too_late_to_prevent_a_hang():
    script = "import jax; jax.numpy.ones(3) + 1; import gradring.jax"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True,
                          env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONWARNINGS": "default"})
    assert "imported after JAX's first computation" in done.stderr


def test_every_op_gives_what_it_must(ring):
    for said in ring.run("jax_ops"):
        assert len(said) == OPS


@pytest.fixture(scope="module")
def trained(ring):
    pytest.importorskip("optax", reason="needs optax")
    return [{one["way"]: one for one in said} for said in ring.run("jax_training", seconds=300)]


@pytest.mark.parametrize("way", WAYS)
def test_trains_as_one_process_would(trained, way):
    """All ranks the same bits, and what one process with all of the data gets."""
    said = [one[way] for one in trained]
    assert len({one["digest"] for one in said}) == 1, said
    assert all(one["off"] < 1e-6 for one in said), said


def test_a_death_is_told_to_all_who_are_in_a_compiled_function(ring):
    """By JAX's error, with the text of ours; whoever catches it goes on, and else the process ends with it."""
    job = ring.launch("jax_death")
    testbed.wait_until(lambda: all(reports(one) for one in job), 90, "all ranks to take steps")
    victim = job[3]
    victim.signal(signal.SIGKILL)
    uncaught, *caught = job.trainers[:3]
    names = ["GradringError: trainer died", "rank 3", "node n1", f"pid {victim.pid}"]
    for one in caught:
        assert one.wait(30) == 0, one.complains()[-2000:]
        told = reports(one)[-1]
        assert told["alone"] == 1000 and all(word in told["text"] for word in names), told
        assert told["again"] == told["text"], told
    assert uncaught.wait(30) == 1
    assert all(word in uncaught.complains() for word in ["jax.errors.JaxRuntimeError", *names]), uncaught.complains()[-2000:]


def test_an_elastic_job_goes_back_where_an_op_fails_in_a_compiled_function(ring):
    ends = [said[-1] for said in ring.run("jax_elastic", "10")]
    assert all(end["resets"] == [4] and end["step"] == 10 for end in ends), ends
    assert all(end["weights"] == ends[0]["weights"] for end in ends), ends
