"""The backend of torch.distributed: its ops, and what trainers are made of."""

import signal
import time

import pytest
from conftest import reports

OPS = 26


def test_every_op_gives_what_it_must(ring):
    for said in ring.run("collectives", fresh=True):
        assert len(said) == OPS


WAYS = ["ddp", "ddp-views", "ddp-unused-and-sparse", "ddp-hook", "ddp-hook-views", "ddp-hook-sparse", "ddp-bf16-wire",
        "ddp-powersgd", "ddp-fp16", "ddp-compiled", "ddp-hook-compiled", "fsdp1", "fsdp1-compiled", "fsdp2", "zero", "accumulate",
        "join", "join-unused"]
ROUNDED = {"ddp-powersgd", "ddp-fp16", "ddp-bf16-wire"}


def by_way(reports):
    """What each rank says of each way, all of them in one job: to import torch takes longer than to train."""
    return [{one["way"]: one for one in said} for said in reports]


def assert_trained_alike(said, off):
    """All ranks the same bits, and, but for what is rounded, what one process with all of the data gets."""
    assert len({one["digest"] for one in said}) == 1, said
    for one in said:
        assert one["off"] < off, said


@pytest.fixture(scope="module")
def trained(ring):
    return by_way(ring.run("training", *WAYS))


@pytest.mark.parametrize("way", WAYS)
def test_trains_as_one_process_would(trained, way):
    assert_trained_alike([one[way] for one in trained], 1e-2 if way in ROUNDED else 1e-6)


MESHES = ["fsdp1-hybrid", "fsdp1-hybrid-zero2", "fsdp2-hybrid", "tensors", "stages-gpipe", "stages-1f1b", "stages-interleaved"]


@pytest.fixture(scope="module")
def on_meshes(ring):
    return by_way(ring.run("meshes", *MESHES))


@pytest.mark.parametrize("way", MESHES)
def test_trains_on_a_mesh_as_one_process_would(on_meshes, way):
    """Shards, slices and stages, with groups of some of the ranks."""
    assert_trained_alike([one[way] for one in on_meshes], 1e-6)


@pytest.mark.parametrize("group", ["none", "given"])
def test_a_hook_sums_the_buckets_of_other_backends_where_they_lie(ring, group):
    for said in ring.run("hook", group):
        *steps, end = said
        assert [one["zero"] for one in steps] == ["none", "in-place"]
        for one in steps:
            assert one["off"] < 1e-6 and one["copied"] == 0, said
        assert end == {"open": False, "kept": True}, "the gradients outlive the group"


# (hook, gradient_as_bucket_view, gradients kept): copies of each byte by torch and by gradring.
COPIES = {(False, False, False): (2, 2), (False, True, False): (1, 2), (False, True, True): (0, 2),
          (True, False, False): (2, 0), (True, True, False): (1, 0), (True, True, True): (0, 0)}


def test_gradients_are_copied_as_often_as_the_documents_say(ring):
    for said in ring.run("ddp_copies"):
        assert {(one["hook"], one["views"], one["kept"]): (one["torch"], one["gradring"]) for one in said} == COPIES


def test_a_hook_leaves_descriptors_to_all_else_that_the_process_does(ring):
    for (said,) in ring.run("few_descriptors"):
        assert said["same"] and said["total"] == 4 and 0.5 < said["used"] < 0.9, said


def test_hooks_that_start_ops_when_one_ends_do_so_in_one_order_on_all_ranks(ring):
    for of_one_hook in zip(*ring.run("chained_hooks"), strict=True):
        assert len({one["digest"] for one in of_one_hook}) == 1, of_one_hook


def test_checkpoints_are_written_and_read(ring):
    for said in ring.run("checkpoint"):
        assert len(said) == 4 and all(one["same"] for one in said), said


@pytest.mark.parametrize(("trains", "policy"), [("sums", "fail"), ("ddp", "fail"), ("ddp-hook", "fail"), ("sums", "elastic")])
def test_a_death_is_told_to_all_by_name(ring, trains, policy):
    """Also where other jobs of the launch would go on without it: torch's groups cannot."""
    job = ring.launch("death", trains, policy)
    victim = job[3]
    deadline = time.monotonic() + 60
    while not all(any("step" in one for one in reports(trainer)) for trainer in job):
        assert time.monotonic() < deadline, [one.complains()[-800:] for one in job]
        time.sleep(0.05)
    victim.signal(signal.SIGKILL)
    killed = time.monotonic()
    for trainer in job.trainers[:3]:
        assert trainer.wait(20) == 0, trainer.complains()[-1500:]
    assert time.monotonic() - killed < 10
    for trainer in job.trainers[:3]:
        told = reports(trainer)[-1]
        assert all(word in told["text"] for word in ("rank 3", "n1", str(victim.pid))), told
        if trains == "sums":
            assert (told["rank"], told["node"], told["pid"], told["cause"]) == (3, "n1", victim.pid, "TRAINER_DIED"), told


def test_a_death_in_a_group_is_told_by_the_number_that_the_rank_has_elsewhere(ring):
    job = ring.launch("death_in_group")
    for trainer in job.trainers[:3]:
        assert trainer.wait(60) == 0, trainer.complains()[-1500:]
    first, again, whole = reports(job[1])
    assert (first["rank"], first["pid"]) == (3, job[3].pid) and "rank 1 of this group is rank 3 of the job" in first["text"], first
    assert again == first, "what comes after the end is told who is to blame, too"
    for told in (whole, *reports(job[0]), *reports(job[2])):
        assert told["rank"] == 3 and "rank 3" in told["text"] and "of this group" not in told["text"], told


def test_a_death_in_a_group_beside_another_backends_is_told_by_the_number_that_the_rank_has_there(ring):
    job = ring.launch("death_beside_gloo")
    for trainer in job.trainers[:3]:
        assert trainer.wait(60) == 0, trainer.complains()[-1500:]
    (told,) = reports(job[1])
    assert (told["rank"], told["pid"]) == (3, job[3].pid) and "rank 1 of this group is rank 3 of the job" in told["text"], told
    (missing,) = reports(job[0])
    assert "missing ranks: 1; ranks 0, 1 of this group are 0, 2 of the job" in missing["text"], missing


@pytest.mark.parametrize("way", ["alone", "spawned"])
def test_an_exception_that_ends_a_rank_is_told_to_all_who_wait_for_it(ring, way):
    """In ops of the job and of groups, and while a group forms; also by a process of multiprocessing's."""
    job = ring.launch("raises", way)
    for trainer in job:
        assert trainer.wait(60) == (trainer is job[3]), trainer.complains()[-1500:]
    (ended,) = reports(job[3])
    for trainer in job.trainers[:3]:
        (told,) = reports(trainer)
        assert "ended by ValueError: no such batch" in told["text"] and "in this file" not in told["text"], told
        assert "rank 3" in told["text"] and str(ended["pid"]) in told["text"], told
        # Who waited for a group alone has it in words.
        assert trainer is job[0] or (told["rank"], told["pid"]) == (3, ended["pid"]), told
    assert "ValueError: no such batch\n" in job[3].complains()


def test_who_is_missing_in_a_group_is_told_in_time_by_the_number_that_the_rank_has_elsewhere(ring):
    by_the_job, by_its_maker = told = ring.run("group_missing")[1]
    assert by_its_maker["seconds"] < 2 < by_the_job["seconds"], "0.5 s, and the 3 s of the default group"
    for one in told:
        assert "missing ranks: 1; ranks 0, 1 of this group are 1, 3 of the job" in one["text"], told


@pytest.mark.parametrize("way", ["destroy", "shutdown", "abort"])
def test_a_group_can_be_left_with_ops_open(ring, way):
    said = ring.run("leaves", way)
    left, after = said[0]
    assert left["seconds"] < 5 and len(left["told"]) == 5, said
    for told in left["told"]:
        assert "this rank has left job leaves" in told["text"], said
    assert "destroyed" in after["after"]["text"], said
    for one in said[1:]:
        assert one[0]["total"] == 4, "what it had submitted counts"
        told = one[0]["told"]
        assert (told["rank"], told["cause"]) == (0, "TRAINER_LEFT") and "rank 0" in told["text"], said


def test_a_group_can_be_made_again(ring):
    for said in ring.run("again"):
        assert [one["total"] for one in said] == [16.0] * 3
    for node in ring.nodes:
        jobs = [one for one in node.ask("jobs")["jobs"] if one["name"].startswith("again")]
        assert len(jobs) == 6 and all(one["state"] == "ended" for one in jobs), jobs


def test_what_never_comes_ends_in_time_and_says_who_is_missing(ring):
    for rank, said in enumerate(ring.run("late")):
        assert [one["what"] for one in said] == (["wait", "future", "method", "barrier"] if rank == 0 else [])
        for one, seconds in zip(said, (2, 1, 0.5, 1)):
            assert one["code"] in ("DEADLINE", None), said
            assert "waits for rank 1 (node " in one["text"] and "and a rank of node " in one["text"], said
            assert f"timeout after {seconds} s" in one["text"] and seconds <= one["seconds"] + 1e-2 < seconds + 2, said


def test_one_rank_warns_of_who_does_not_come(ring):
    job = ring.launch("stalled", 1)
    assert job.wait(60) == [0] * 4
    told = [[line for line in one.complains().splitlines() if " s: allreduce sum" in line] for one in job]
    assert not told[1] and not told[3], told
    assert 1 <= len(told[0]) <= 3 and "waits for rank 1 (node " in told[0][0] and f"pid {job[1].pid}" in told[0][0], told
    assert told[0][0].startswith("gradring: rank 0 has waited for "), told
    assert "object is not callable" in job[3].complains(), "its own warning failed, and it alone"
    of_group = [line for line in told[2] if "ranks 0, 1 of this group are 1, 2 of the job" in line]
    assert of_group and "rank 2 has waited for" in of_group[0] and "waits for rank 0 (node " in of_group[0], told


def test_ctrl_c_ends_a_rank_that_waits(ring):
    job = ring.launch("waits")
    deadline = time.monotonic() + 60
    while not any("waiting" in one for one in reports(job[0])):
        assert time.monotonic() < deadline, job[0].complains()[-800:]
        time.sleep(0.05)
    job[0].signal(signal.SIGINT)
    assert job[0].wait(20) != 0
    assert "KeyboardInterrupt" in job[0].complains()
    for trainer in job:
        trainer.kill()
