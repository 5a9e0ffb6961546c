"""Ranks that are lost in the middle of training, and ranks that come back."""

import importlib.util
import signal
import sys
import time

import pytest
import torch
from conftest import TRAINERS, reports

from gradring.elastic import HostsUpdatedInterrupt, State, run
from gradring.torch.elastic import TorchState, _together

STEPS = 30


def wait_until(condition, seconds, complaint):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.05)


def steps(trainer):
    return [one for one in reports(trainer) if "step" in one]


@pytest.mark.parametrize("victim", [3, 0])
def test_goes_on_without_a_rank_and_takes_it_in_again(ring, victim):
    """Whoever is left has what all had, and who comes back has it as well, also where rank 0 was lost."""
    job = ring.launch("elastic", str(STEPS))
    wait_until(lambda: all(len(steps(one)) >= 5 for one in job), 60, lambda: [one.complains()[-1500:] for one in job])
    job[victim].signal(signal.SIGKILL)
    left = [one for rank, one in enumerate(job) if rank != victim]
    wait_until(lambda: all(steps(one)[-1]["size"] == 3 for one in left), 20,
               lambda: [one.complains()[-1500:] for one in left])
    command = [*ring.environment(), sys.executable, TRAINERS / "elastic.py", "-", str(STEPS)]
    again = ring.cluster.start_trainer(job.name, command, ring.nodes[victim // 2], victim, 4, victim % 2, 2)
    everybody = [*left, again]
    for one in everybody:
        assert one.wait(90) == 0, (one.name, one.says()[-500:], one.complains()[-2000:])
    ends = [reports(one)[-1] for one in everybody]
    assert all(end["size"] == 4 and end["weights"] == ends[0]["weights"] for end in ends), ends
    assert all(end["resets"] == [3, 4] for end in ends[:3]) and ends[3]["resets"] == [], ends
    assert steps(again)[0]["step"] > 5  # it did not begin at the beginning


def test_what_is_left_of_an_epoch_is_shared_out_among_those_that_are_left(ring):
    """No sample is left out, and none given to two of them."""
    *left, _ = ring.launch("elastic_sampler")
    for one in left:
        assert one.wait(60) == 0, (one.name, one.says()[-500:], one.complains()[-2000:])
    said = [reports(one) for one in left]
    before = [set(first["share"]) for first, _, _ in said]
    shares = [second["share"] for _, second, _ in said]
    assert len(set().union(*before)) == 48
    given = [sample for share in shares for sample in share]
    assert len(given) - len(set(given)) < len(left), shares  # some may be given twice, for shares to be equal
    processed = [sample for _, _, end in said for sample in end["processed"]]
    assert set(processed) == set(range(64)) and len(processed) < 64 + len(left), processed


def test_all_go_back_where_one_does(ring):
    """At once: an op of the others would wait for that rank for half an hour."""
    said = ring.run("elastic_alone", seconds=30)
    for rank, (first, *alone, together, end) in enumerate(said):
        # Rank 3 waits in a process set, in which rank 2 has the number 0, and the others for both of them.
        assert {2: "of this rank", 3: "rank 0"}.get(rank, "node n1") in first["back"], first
        for back in alone:
            assert ("of this rank" if rank == 2 else "rank 2") in back["back"], back
        assert rank == 2 or all("has gone back to an earlier step" in back["back"] for back in (first, *alone)), said
        assert "of this rank" in together["back"], together
        assert end == {"resets": [1, 3, 5, 7], "size": 4}, end


def test_who_comes_to_a_commit_after_another_has_gone_back_goes_back_too(ring):
    """Also where it is alone on its node, whose daemon has heard of that before."""
    assert ring.run("elastic_commits_late", per_node=1, seconds=20) == [[{"step": 4, "size": 2}]] * 2


def test_what_failed_is_let_go(ring):
    """Its groups, with their descriptors, and what the training function had in its hands."""
    for said in ring.run("elastic_lets_go", seconds=60):
        assert len(said) == 7 and all(one["batches"] == 0 for one in said), said
        assert len({one["descriptors"] for one in said[2:]}) == 1, said


def test_an_error_that_does_not_go_away_is_raised(ring):
    """And each return is told, so that nobody takes going back for training."""
    job = ring.launch("elastic_mismatch")
    for one in job:
        assert one.wait(30) == 1, (one.name, one.says()[-500:], one.complains()[-2000:])
        assert one.complains().count("going back to the last commit: ") == 3, one.complains()
        assert "mismatch" in one.complains().splitlines()[-1], one.complains()
        assert reports(one) == [{"step": 3}] * 4, reports(one)


@pytest.mark.parametrize(("when", "resets"), [("begun", [2]), ("known", [2]), ("reset", [3, 2]), ("first", [3])])
def test_goes_on_without_a_rank_that_is_lost_as_the_others_meet(ring, when, resets):
    job = ring.launch("elastic_twice", when)
    for rank, one in enumerate([job[0], job[1]]):
        assert one.wait(60) == 0, (one.name, one.says()[-500:], one.complains()[-2000:])
        place = [rank, resets[-1], rank, 2]
        assert reports(one) == [{"resets": resets, "place": place, "step": 6}], reports(one)


def test_optimizers_of_a_rank_that_comes_to_one_that_was_alone_do_as_that_ones(ring):
    """At once: what they exchanged when they are made, the other would not take part in."""
    command = [*ring.environment(), sys.executable, TRAINERS / "elastic_late.py"]
    first = ring.cluster.start_trainer("late", command, ring.nodes[0], 0, 1)
    wait_until(lambda: reports(first), 60, lambda: [first.complains()[-1500:]])
    both = [first, ring.cluster.start_trainer("late", command, ring.nodes[0], 1, 2, 1, 2)]
    for one in both:
        assert one.wait(60) == 0, (one.name, one.says()[-500:], one.complains()[-2000:])
    assert reports(both[0])[-1] == reports(both[1])[-1]


def test_process_sets_are_of_the_same_ranks_where_others_are_lost_and_come_in(ring):
    job = ring.launch("elastic_sets")
    _, *left = job

    def wait_for(sizes):
        wait_until(lambda: all([one["size"] for one in reports(trainer)] == sizes for trainer in left), 60,
                   lambda: [trainer.says() + trainer.complains()[-1500:] for trainer in left])

    def instead(role):
        command = [*ring.environment(), sys.executable, TRAINERS / "elastic_sets.py", "-", role]
        return ring.cluster.start_trainer(job.name, command, ring.nodes[0], 0, 4, 0, 2)

    wait_for([3])
    refused = instead("refused")
    assert refused.wait(60) == 0 and reports(refused) == [{"refused": True}], refused.complains()[-2000:]
    wait_for([3, 4, 3])
    for one in [instead("comes"), *left]:
        assert one.wait(60) == 0, (one.name, one.says()[-500:], one.complains()[-2000:])
    wait_for([3, 4, 3, 4])


def test_process_sets_are_made_as_the_document_says_though_a_rank_is_lost_meanwhile(ring):
    job = ring.launch("elastic_doc_sets")
    first, lost, *others = job
    left = [first, *others]
    wait_until(lambda: all({"sets": [[0, 2], [1]]} in reports(one) for one in left), 30,
               lambda: [one.says() + one.complains()[-1500:] for one in left])
    assert lost.wait(5) == 3
    command = [*ring.environment(), sys.executable, TRAINERS / "elastic_doc_sets.py", "-", "again"]
    for one in [ring.cluster.start_trainer(job.name, command, ring.nodes[0], 1, 4, 1, 2), *left]:
        assert one.wait(30) == 0, (one.name, one.says()[-500:], one.complains()[-2000:])
        assert reports(one)[-1] == {"sets": [[0, 2], [1, 3]]}, reports(one)


def test_who_makes_a_process_set_does_not_wait_for_a_rank_that_could_not_make_another(ring):
    _, *left, _ = ring.launch("elastic_overlapping_sets")
    for one in left:
        assert one.wait(30) == 0, (one.name, one.says()[-500:], one.complains()[-2000:])
        assert reports(one) == [{"step": 6, "size": 2}], reports(one)


def test_a_state_of_ones_own_is_that_of_those_who_were_there_where_rank_0_comes_in(ring):
    """Horovod's have no word on the root, which is rank 0 there."""
    job = ring.launch("elastic_own_state")
    lost, *left = job
    wait_until(lambda: all(len(steps(one)) >= 5 for one in job), 60, lambda: [one.complains()[-1500:] for one in job])
    lost.signal(signal.SIGKILL)
    wait_until(lambda: all(steps(one)[-1]["size"] == 3 for one in left), 20, lambda: [one.complains()[-1500:] for one in left])
    command = [*ring.environment(), sys.executable, TRAINERS / "elastic_own_state.py", "-"]
    again = ring.cluster.start_trainer(job.name, command, ring.nodes[0], 0, 4, 0, 2)
    for one in [again, *left]:
        assert one.wait(60) == 0, (one.name, one.says()[-500:], one.complains()[-2000:])
        said = [report["step"] for report in steps(one)]
        assert said == list(range(said[0], said[-1] + 1)), said  # none was done again
    assert steps(again)[0]["step"] > 5


def test_where_too_few_are_left_that_is_raised_and_nobody_is_told_of_going_back(ring):
    lost, *left = job = ring.launch("elastic_own_state", "4")
    wait_until(lambda: all(steps(one) for one in job), 60, lambda: [one.complains()[-1500:] for one in job])
    lost.signal(signal.SIGKILL)
    for one in left:
        assert one.wait(30) == 1, (one.name, one.says()[-500:], one.complains()[-2000:])
        assert "3 ranks left, fewer than min=4" in one.complains().splitlines()[-1], one.complains()
        assert "going back" not in one.complains(), one.complains()


def test_all_of_a_state_is_of_one_commit_where_who_hands_it_out_is_lost(ring):
    _, *left = ring.launch("elastic_parts")
    for one in left:
        assert one.wait(60) == 0, (one.name, one.says()[-500:], one.complains()[-2000:])
        assert reports(one) == [{"weight": 0, "step": 0}, {"weight": 3, "step": 3}], reports(one)


def test_a_rank_whose_state_has_other_parts_takes_over_none_of_them(ring):
    """It would begin with the state of one part in another, and all would wait for one another."""
    *left, other = ring.launch("elastic_other_parts")
    assert other.wait(30) == 1, other.complains()[-2000:]
    said = other.complains().splitlines()[-1]
    assert "is made of model, optimizer, and that of rank 0, which it is to take over, of model, optimizer, schedule;" in said, said
    for one in left:
        assert one.wait(30) == 0, (one.name, one.says()[-500:], one.complains()[-2000:])
        assert reports(one) == [{"step": 5, "size": 3}], reports(one)


def test_what_was_processed_is_put_together():
    states = [{"epoch": 7, "processed_indices": {8}}, {"epoch": 1, "processed_indices": {1, 2}},
              {"epoch": 1, "processed_indices": {3}}, {"epoch": 0, "processed_indices": {9}}]
    assert _together(states, 1) == {"epoch": 1, "processed_indices": {1, 2, 3}}


def test_a_part_may_take_the_place_of_none_and_none_that_of_a_part():
    """A copy of a schedule would have a copy of the optimizer, and steer that."""
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    state = TorchState(optimizer=optimizer, schedule=None, average=torch.nn.Linear(1, 1), step=0)
    assert state.model is None
    state.model, state.average = model, None
    schedule = state.schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    optimizer.step()
    schedule.step()
    state.step = 1
    state.save()
    kept = model.weight.item()
    optimizer.step()
    schedule.step()
    with torch.no_grad():
        model.weight += 1
    state.step, state.average = 2, 7
    state.restore()
    assert state.model is model and model.weight.item() == kept
    assert state.schedule is schedule and schedule.optimizer is optimizer and schedule.get_last_lr() == [0.5]
    assert (state.step, state.average) == (1, None)


@pytest.fixture
def tensorflow():
    for name in ("keras", "tensorflow"):
        if importlib.util.find_spec(name) is None:  # to import them takes longer than the tests of others
            pytest.skip(f"{name} is not installed (tests/python/requirements-full.txt)")


@pytest.mark.parametrize("how", ["eager", "sparse"])
def test_keras_goes_on_without_a_rank(ring, tensorflow, how):
    job = ring.launch("keras_elastic", "3", how)
    wait_until(lambda: all(len(steps(one)) >= 3 for one in job), 120, lambda: [one.complains()[-1500:] for one in job])
    job[1].signal(signal.SIGKILL)
    left = [job[0], job[2], job[3]]
    for one in left:
        assert one.wait(90) == 0, (one.name, one.says()[-500:], one.complains()[-2000:])
    ends = [reports(one)[-1] for one in left]
    assert all(end["resets"] == [3] and end["epoch"] >= 3 for end in ends), ends
    assert all(end["weights"] == ends[0]["weights"] for end in ends), ends
    assert all(end["synced"] == [0.0, 7.0, 0, 5] for end in ends), ends


def test_keras_goes_back_in_a_graph_where_one_rank_does(ring, tensorflow):
    """Where an op fails, a graph raises an error of TensorFlow's."""
    ends = [said[-1] for said in ring.run("keras_elastic", "3", "alone")]
    assert all(end["resets"] == [4] and end["epoch"] == 3 for end in ends), ends
    assert all(end["weights"] == ends[0]["weights"] for end in ends), ends


def test_functions_that_tensorflow_has_traced_count_the_ranks_that_there_are(ring, tensorflow):
    lost, *left = ring.launch("tensorflow_elastic")
    for one in left:
        assert one.wait(90) == 0, (one.name, one.says()[-500:], one.complains()[-2500:])
        assert reports(one) == [{"size": 4}, {"size": 3}], reports(one)


def test_what_is_set_in_place_of_a_part_is_kept(tensorflow):
    import keras
    import tensorflow as tf

    from gradring.keras.elastic import KerasState
    from gradring.tensorflow.elastic import TensorFlowState

    first, second = [keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)]) for _ in range(2)]
    second.compile("sgd")
    state, of_variables = KerasState(first), TensorFlowState([tf.Variable(1.0)])
    state.model, of_variables.variables = second, [tf.Variable(2.0)]
    kept = second.get_weights()
    for one in (state, of_variables):
        one.save()
    second.set_weights([weights + 1 for weights in kept])
    of_variables.variables[0].assign(3.0)
    for one in (state, of_variables):
        one.restore()
    assert second.get_weights() == kept and of_variables.variables[0].numpy() == 2.0
    assert state.optimizer is second.optimizer
    of_variables.variables.append(tf.Variable(4.0))
    with pytest.raises(ValueError, match="a state of 1 variables for a model or an optimizer that has 2; it must be the same"):
        of_variables.restore()


@pytest.mark.parametrize("first", [None, "adam"])
def test_the_optimizer_of_a_model_that_is_compiled_anew_is_kept(tensorflow, first):
    import keras

    from gradring.keras.elastic import KerasState

    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    if first:
        model.compile(first)
    state = KerasState(model)
    of_ones_own = KerasState(model, keras.optimizers.SGD())
    model.compile("adam")
    for one in (state, of_ones_own):
        one.save()
    model.optimizer.iterations.assign(7)
    state.restore()
    assert state.optimizer is model.optimizer and int(model.optimizer.iterations) == 0
    assert of_ones_own.optimizer is not model.optimizer


def test_what_was_to_be_synced_still_is_where_a_callback_meets_the_others():
    """Those that came in would begin at the beginning, and the others go on."""
    told, interrupts = [], [HostsUpdatedInterrupt(skip_sync=False), HostsUpdatedInterrupt(skip_sync=True)]

    class Own(State):
        def sync(self):
            told.append("sync")

    def once_more():
        told.append("meets")
        if interrupts:
            raise interrupts.pop()

    @run
    def train(_):
        told.append("trains")
        if len(interrupts) == 2:
            raise interrupts.pop(0)
    own = Own()
    own.register_reset_callbacks([once_more])
    train(own)
    assert told == ["sync", "trains", "meets", "meets", "sync", "trains"], told


def test_a_state_of_ones_own_is_begun_as_horovods():
    class Own(State):
        def __init__(self):
            super().__init__(bcast_object=lambda one, root_rank=0: [one, root_rank], get_rank=lambda: 7)

        def sync(self):
            self.synced = self._bcast_object(self._rank(), root_rank=2)

        def reset(self):
            self.synced = None
    own, told = Own(), []
    own.register_reset_callbacks([lambda: told.append(own.synced)])
    own.sync()
    assert own.synced == [7, 2]
    own.on_reset()
    assert told == [None]
