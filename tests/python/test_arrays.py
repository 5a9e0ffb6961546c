"""`import gradring`: NumPy arrays on real daemons."""

import os
import re
import pickle
import sys
from types import SimpleNamespace

import gradring
import numpy as np
import pytest
from conftest import TRAINERS, reports
from gradring import adasum
from gradring.adasum import weights
from gradring.arrays import ARRAYS
from gradring.reduce_ops import wire_of
from gradring.world import _standing_of

OPS = 22


def test_every_op_gives_what_it_must(ring):
    for said in ring.run("arrays"):
        assert len(said) == OPS


def test_a_script_that_nobody_launched_is_a_job_of_one(ring):
    script = ("import gradring; gradring.init(); from report import say;"
              "say(rank=gradring.rank(), size=gradring.size(), mean=float(gradring.allreduce([2.5])[0]))")
    unset = ["/usr/bin/env", "-u", "RANK", "-u", "WORLD_SIZE", "-u", "LOCAL_RANK", "-u", "GRADRING_JOB",
             f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}:{TRAINERS}"]
    job = ring.cluster.launch("alone", [*unset, sys.executable, "-c", script], nodes=ring.nodes[:1])
    assert job.wait(60) == [0], job[0].complains()
    assert reports(job[0]) == [{"rank": 0, "size": 1, "mean": 2.5}]


def test_a_place_that_is_no_number_is_not_that_of_a_job_of_one(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "$INDEX")
    with pytest.raises(gradring.GradringError, match="RANK is '.INDEX', which is not a number"):
        gradring.init(runtime_dir="/nowhere")


@pytest.mark.parametrize("wrong", ["x", 0, None, [0]])
@pytest.mark.parametrize("op", ["allreduce", "grouped_allreduce", "allgather", "alltoall", "reducescatter", "barrier",
                                "broadcast", "broadcast_object", "allgather_object", "remove_process_set"])
def test_what_is_no_process_set_is_refused_in_words(op, wrong, monkeypatch):
    monkeypatch.setattr("gradring.objects.rank", lambda: 0)
    given = {"barrier": (), "remove_process_set": (wrong,), "grouped_allreduce": ([np.ones(2)],), "broadcast": (np.ones(2), 0)}
    named = {} if op == "remove_process_set" else {"process_set": wrong}
    with pytest.raises(TypeError, match="which is no ProcessSet: give what add_process_set"):
        getattr(gradring, op)(*given.get(op, (np.ones(2),)), **named)


@pytest.mark.parametrize("priority", ["x", 1.5, None, 1 << 40])
def test_what_is_no_priority_is_refused_in_words(priority):
    with pytest.raises(TypeError, match=f"priority is {priority!r}: it takes a whole number of 32 bits"):
        gradring.allreduce(np.ones(2), priority=priority)


@pytest.mark.parametrize("factor", ["x", None, [1], np.ones(2), 1j], ids=repr)
@pytest.mark.parametrize("named", ["prescale_factor", "postscale_factor"])
def test_what_is_no_factor_is_refused_in_words(named, factor):
    for op, given in ((gradring.allreduce, np.ones(2)), (gradring.reducescatter, np.ones(2)), (gradring.grouped_allreduce, [])):
        with pytest.raises(TypeError, match=re.escape(f"gradring: {factor!r} is nothing to scale by: prescale_factor and")):
            op(given, **{named: factor})
    with pytest.raises(TypeError, match=re.escape(f"gradring: {factor!r} is nothing to scale by: prescale_factor and")):
        gradring.allreduce(np.ones(2), op=gradring.Adasum, **{named: factor})


@pytest.mark.parametrize("ranks", ["x", 3, None, [0.5], ["0"], [[0]]], ids=repr)
def test_what_are_no_ranks_of_a_process_set_is_refused_in_words(ranks):
    for make in (gradring.ProcessSet, gradring.add_process_set):
        with pytest.raises(TypeError, match=re.escape(f"gradring: a process set of {ranks!r}: it takes a list of ranks, which are")):
            make(ranks)


def test_what_is_no_handle_is_refused_in_words():
    assert gradring.synchronize(None) is None
    with pytest.raises(TypeError, match="synchronize.. of 5, which is no handle"):
        gradring.synchronize(5)
    for wrong in (5, None):
        with pytest.raises(TypeError, match=f"poll.. of {wrong}, which is no handle"):
            gradring.poll(wrong)


@pytest.mark.parametrize("root", ["x", None, 1.0, 1, -1])
def test_what_is_no_root_is_refused_in_words(root, monkeypatch):
    monkeypatch.setattr("gradring.process_sets.world", lambda: SimpleNamespace(standing=SimpleNamespace(numbers=[0])))
    with pytest.raises(ValueError, match=f"there is no rank {root} among 1"):
        gradring.process_sets.global_process_set.place_of(root)


@pytest.mark.parametrize("way", ["stages", "future"])
def test_a_process_may_end_with_an_op_under_way(ring, way):
    """Also with one that a thread waits for, which must not be caught by the end of the interpreter."""
    for said in ring.run("ends", way, fresh=True):
        assert [list(one) for one in said] == [["ended"]]


def test_adasum_of_a_short_vector_is_none_where_a_rank_is_lost_meanwhile(monkeypatch):
    """What the others give would be long enough."""
    def gives(result):
        return lambda *_, **__: SimpleNamespace(wait=lambda: [result])
    monkeypatch.setattr(adasum.exchange, "alltoall", gives(np.ones((3, 1))))
    monkeypatch.setattr(adasum.exchange, "allreduce", gives(np.ones((3, 3))))
    monkeypatch.setattr(adasum.exchange, "allgather", gives(np.ones(2)))
    with pytest.raises(gradring.GradringError, match="2 are left of 3"):
        adasum._combine(np.ones(2), "op", SimpleNamespace(size=lambda: 3))


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_adasum_of_orthogonal_gradients_is_their_sum_and_of_equal_ones_their_mean(ranks):
    assert np.allclose(weights(np.eye(ranks)), 1)
    equal = weights(np.ones((ranks, ranks)))
    assert np.isclose(equal.sum(), 1)


@pytest.mark.parametrize("wire", ["bfloat16", "", None, 2])
def test_a_wire_that_there_is_not_is_refused_in_words(wire):
    with pytest.raises(ValueError, match="native, fp16, bf16, int8"):
        gradring.allreduce(np.ones(3, np.float32), wire=wire)


def test_a_wire_is_named_as_in_the_environment():
    assert wire_of("bf16") == gradring.Wire.BFLOAT16 and wire_of("native") == gradring.Wire.NATIVE
    assert wire_of(gradring.Wire.INT8) == gradring.Wire.INT8


def test_ops_are_the_same_in_another_process():
    for op in (gradring.Average, gradring.Adasum):
        assert pickle.loads(pickle.dumps(op)) is op


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint64"])
@pytest.mark.parametrize("ranks", [2, 3, 128, 200])
def test_integers_are_divided_towards_zero_from_the_least_to_the_greatest(dtype, ranks):
    bounds = np.iinfo(dtype)
    sums = [bounds.min, bounds.min // 2, -7 if bounds.min else 7, 0, 1, bounds.max]
    array = np.array(sums, dtype)
    ARRAYS.divide(array if array.itemsize == 8 else ARRAYS.widened(array), ranks, array)
    assert array.tolist() == [abs(one) // ranks * (1 if one > 0 else -1) for one in sums]


def test_local_and_cross_ranks_of_nodes_that_differ():
    cards = [(b"a", 0, 0), (b"a", 1, 1), (b"b", 0, 2)]
    standings = [_standing_of(number, cards) for number in range(3)]
    assert [(one.local_rank, one.local_size, one.cross_rank, one.cross_size) for one in standings] == [
        (0, 2, 0, 2), (1, 2, 0, 1), (0, 1, 1, 2)]
    assert not standings[0].is_homogeneous


def test_ranks_that_are_left_are_counted_anew():
    one = _standing_of(5, [(b"a", 1, 3), (b"a", 3, 5)])
    assert (one.rank, one.size, one.local_rank, one.local_size, one.numbers) == (1, 2, 1, 2, (3, 5))
