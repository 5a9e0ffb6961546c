"""`import gradring.torch as hvd`: Horovod's names, on real daemons."""

import pytest

pytest.importorskip("torch")

CHECKS_OF_OPS = 14
CHECKS_OF_OPTIMIZERS = 17


def test_every_op_gives_what_it_must(ring):
    for said in ring.run("horovod_ops"):
        assert len(said) == CHECKS_OF_OPS


def test_optimizers_do_as_one_process_that_has_all_batches(ring):
    for said in ring.run("horovod_optimizer"):
        assert len(said) == CHECKS_OF_OPTIMIZERS


def test_optimizers_follow_what_is_trained(ring):
    for said in ring.run("horovod_later"):
        assert len(said) == 5


def test_states_of_optimizers_keep_their_types(ring):
    for said in ring.run("horovod_states"):
        assert len(said) == 2


def test_gradients_that_are_changed_while_they_are_exchanged_are_refused(ring):
    for said in ring.run("horovod_changed"):
        assert len(said) == 3
