"""What becomes of Horovod's variables."""

import warnings

import pytest

from gradring import horovod_env

# What horovodrun --gloo tells its second rank of four, on two hosts.
HOROVODRUN = {
    "HOROVOD_HOSTNAME": "alpha", "HOROVOD_RANK": "1", "HOROVOD_SIZE": "4", "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "2", "HOROVOD_CROSS_RANK": "0", "HOROVOD_CROSS_SIZE": "2",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": "4711",
}


def test_says_nothing_where_there_is_nothing():
    assert horovod_env.read({}) == horovod_env.Settings()
    assert horovod_env.read({"HOROVOD_RANK": "", "HOROVOD_CYCLE_TIME": "", "PATH": "/bin"}) == horovod_env.Settings()


def test_takes_the_place_that_horovodrun_gives():
    settings = horovod_env.read(HOROVODRUN)
    assert (settings.rank, settings.size, settings.local_rank, settings.local_size) == (1, 4, 1, 2)
    assert (settings.cross_rank, settings.cross_size) == (0, 2)
    assert settings.variables == {
        "GRADRING_RANK": "1", "GRADRING_SIZE": "4", "GRADRING_LOCAL_RANK": "1", "GRADRING_LOCAL_SIZE": "2",
        "GRADRING_JOB": "horovod-10.0.0.1:4711"}
    assert settings.warning is None


@pytest.mark.parametrize("ours", ["GRADRING_RANK", "GRADRING_SIZE", "RANK", "WORLD_SIZE"])
def test_a_place_in_our_words_counts_alone(ours):
    settings = horovod_env.read({**HOROVODRUN, ours: "3"})
    assert settings == horovod_env.Settings()


def test_a_place_of_the_whole_batch_job_does_not_stand_above_that_of_horovodrun():
    assert horovod_env.read({**HOROVODRUN, "SLURM_PROCID": "0"}).variables["GRADRING_RANK"] == "1"


def test_a_job_keeps_its_name():
    assert "GRADRING_JOB" not in horovod_env.read({**HOROVODRUN, "GRADRING_JOB": "mine"}).variables
    without = {name: value for name, value in HOROVODRUN.items() if "RENDEZVOUS" not in name}
    assert "GRADRING_JOB" not in horovod_env.read(without).variables


def test_the_timeline():
    settings = horovod_env.read({"HOROVOD_TIMELINE": "/tmp/t.json"})
    assert (settings.timeline, settings.variables) == ("/tmp/t.json", {"GRADRING_TIMELINE": "/tmp/t.json"})
    assert horovod_env.read({"HOROVOD_TIMELINE": "a", "GRADRING_TIMELINE": "b"}).variables == {}
    assert horovod_env.read({"HOROVOD_TIMELINE": "DYNAMIC"}) == horovod_env.Settings()


@pytest.mark.parametrize(("value", "is_elastic"), [("1", True), ("true", True), ("0", False), ("False", False)])
def test_elastic_is_a_policy(value, is_elastic):
    settings = horovod_env.read({"HOROVOD_ELASTIC": value, "HOROVOD_DYNAMIC_PROCESS_SETS": value})
    assert (settings.elastic, settings.dynamic_process_sets) == (is_elastic, is_elastic)
    assert settings.variables == ({"GRADRING_POLICY": "elastic"} if is_elastic else {})
    assert horovod_env.read({"HOROVOD_ELASTIC": "1", "GRADRING_POLICY": "elastic min=2"}).variables == {}


def test_times_to_start_are_times_to_join():
    both = {"HOROVOD_START_TIMEOUT": "600", "HOROVOD_GLOO_TIMEOUT_SECONDS": "60"}
    assert horovod_env.read(both).variables == {"GRADRING_JOIN_TIMEOUT": "600"}
    assert horovod_env.read({"HOROVOD_GLOO_TIMEOUT_SECONDS": "60"}).join_timeout == 60
    assert horovod_env.read({**both, "GRADRING_JOIN_TIMEOUT": "5"}).variables == {}


def test_stalls_are_warned_of_in_the_time_that_is_given_or_not_at_all():
    assert horovod_env.read({"HOROVOD_STALL_CHECK_TIME_SECONDS": "5"}).variables == {"GRADRING_STALL_WARNING": "5"}
    both = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "5", "HOROVOD_STALL_CHECK_DISABLE": "1"}
    assert horovod_env.read(both).variables == {"GRADRING_STALL_WARNING": "0"}
    assert horovod_env.read({**both, "GRADRING_STALL_WARNING": "9"}).variables == {}


@pytest.mark.parametrize("name", ["HOROVOD_RANK", "HOROVOD_CROSS_SIZE", "HOROVOD_START_TIMEOUT"])
@pytest.mark.parametrize("value", ["one", "-1", "1.5", "\u0663"])
def test_what_makes_no_sense_is_named(name, value):
    with pytest.raises(ValueError, match=f"{name} is .*not a number"):
        horovod_env.read({name: value})


@pytest.mark.parametrize("name", horovod_env.NEEDLESS)
def test_each_that_needs_nothing_is_named_with_its_reason(name):
    settings = horovod_env.read({f"HOROVOD_{name}": "1"})
    assert settings.variables == {}
    assert settings.warning == f"not needed with gradring: HOROVOD_{name} ({horovod_env.NEEDLESS[name]})"


def test_one_text_for_all_by_reason():
    warning = horovod_env.read({"HOROVOD_CYCLE_TIME": "5", "HOROVOD_AUTOTUNE": "1", "HOROVOD_TIMELINE": "t",
                                "HOROVOD_TIMELINE_MARK_CYCLES": "1"}).warning
    assert "HOROVOD_CYCLE_TIME, HOROVOD_TIMELINE_MARK_CYCLES (the daemon acts on events" in warning
    assert warning.count("\n") == 0 and "HOROVOD_TIMELINE," not in warning


def test_apply_sets_what_is_unset_and_warns_once(monkeypatch):
    monkeypatch.setattr(horovod_env, "_warned", False)
    environ = {**HOROVODRUN, "HOROVOD_CYCLE_TIME": "5"}
    with pytest.warns(UserWarning, match="HOROVOD_CYCLE_TIME") as caught:
        settings = horovod_env.apply(environ)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert environ["GRADRING_RANK"] == "1" and settings.rank == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = horovod_env.apply(environ)
    assert (again.rank, again.cross_size, again.variables) == (1, 2, {})
