"""So many nodes that READY goes along a tree of them, and small sums do."""

import signal

import pytest
from checks import OK, TRAINER, assert_agreed, events, longest_step, run_job, wait_for_all
from cluster import TookTooLong, wait_until

NODES = 18  # two levels below the first: 8, and 9 below two of these
# Trainers and daemons of so many nodes share two processors.
GOES_ON_WITHIN = 8.0


@pytest.fixture
def many(namespaces, make_cluster):
    return make_cluster(NODES, network=namespaces).start()


def test_small_sums_go_up_a_tree_and_down_again(many):
    ops, count = 50, 1000

    def sent():
        """In buffers of the size of an op."""
        return [node.ask("status")["counters"]["payload_bytes_sent"] / (ops * count * 4) for node in many.nodes]
    before = sent()
    run_job(many, "small", "--ops", ops, "--count", count)
    # Down to eight nodes; up, and down to eight or to one; up alone.
    expected = [early + more for early, more in zip(before, [8] + [9] + [2] + [1] * 15)]

    def as_the_tree_needs():
        """Daemons count a moment later, and what lies in a bundle with its head."""
        return all(0 <= is_sent - needed < 0.2 for is_sent, needed in zip(sent(), expected))
    try:
        wait_until(as_the_tree_needs, 10, "as many bytes were sent as the tree needs")
    except TookTooLong as error:
        raise AssertionError(f"{error}: {sent()} and not {expected}") from None
    run_job(many, "large", "--ops", "5", "--count", "100000")


def test_a_rank_that_is_late_is_named_however_deep_in_the_tree(many):
    words = [TRAINER, "--ops", "100000", "--count", "1000"]
    slow = NODES - 1
    job = many.launch("uneven", words, of_rank={rank: ["--delay-ms", "200" if rank == slow else "100"] for rank in range(NODES)})
    wait_for_all(job, "done", 30, seconds=60)
    report = many.nodes[0].ask("job", "uneven")
    job.kill()
    assert (report["straggler"]["rank"], report["straggler"]["node"]) == (slow, job[slow].node.name), report
    assert 0.05 < report["straggler"]["late_seconds"] < 0.15, report
    for rank in report["ranks"]:
        mean = rank["steps"]["mean_seconds"]
        waits_for_it = mean["straggler"] > 0.3 * sum(mean[part] for part in ("compute", "input", "straggler", "exposed"))
        assert waits_for_it == (rank["rank"] != slow), report


def test_a_job_goes_on_without_the_node_that_sums(many, figure):
    words = [TRAINER, "--policy", "elastic", "--ops", "120", "--join-every", "5", "--delay-ms", "4", "--count", "1000"]
    job = many.launch("topless", words)
    wait_for_all(job, "done", 30, seconds=60)
    many.nodes[0].daemon.signal(signal.SIGKILL)
    job[0].kill()
    survivors = list(job)[1:]
    assert [one.wait(120) for one in survivors] == [0] * (NODES - 1), [one.says()[-600:] for one in survivors]
    seen = assert_agreed(survivors)
    assert seen[10][:3] == (OK, NODES, NODES) and seen[119][:3] == (OK, NODES - 1, NODES - 1)
    assert all(one["right"] for trainer in survivors for one in events(trainer, "done") if "right" in one)
    pause = longest_step(survivors)
    figure(f"many nodes: {NODES} on this machine, the one that sums is killed: the others lose at most {pause:.3f} s")
    assert pause < GOES_ON_WITHIN
    many.processes.append(many.nodes[0].run_daemon())
    many.nodes[0].wait_ready(NODES - 1)
