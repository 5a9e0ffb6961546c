"""`import gradring.torch as hvd`: Horovod's names, on real daemons."""

import pytest

pytest.importorskip("torch")

import gradring.torch as hvd  # noqa: E402
import torch  # noqa: E402

CHECKS_OF_OPS = 14
CHECKS_OF_OPTIMIZERS = 17


@pytest.mark.parametrize("named, kind, words", [
    ({"backward_passes_per_step": "2"}, TypeError, "backward_passes_per_step is '2'; it takes a whole number"),
    ({"compression": "fp16"}, TypeError, "compression='fp16'; it takes one of Compression"),
    ({"op": "sum"}, TypeError, "op='sum'; ops are gradring's"),
    ({"optimizer": torch.nn.Linear(1, 1)}, TypeError, "of a Linear; it takes an optimizer"),
    *(({"gradient_predivide_factor": one}, ValueError, "it takes a number above 0") for one in (0, -1.0, "x", float("nan"))),
], ids=str)
def test_what_is_no_option_of_an_optimizer_is_refused_in_words(named, kind, words):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(3))])
    with pytest.raises(kind, match=words):
        hvd.DistributedOptimizer(**{"optimizer": optimizer, **named})


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
