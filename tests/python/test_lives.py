"""Into a job, out of it, and into the next."""

import signal
import sys
import time

from conftest import TRAINERS, reports, two_nodes


def test_a_rank_that_failed_to_get_in_may_try_again(ring):
    first, second = ring.run("lives", "retry", per_node=1, seconds=30)
    assert first == [{"total": 2.0}]
    assert second[0]["told"]["code"] == "UNAVAILABLE" and second[1:] == first, second


def test_who_shuts_down_has_left_whatever_it_keeps(ring):
    """At once: the others would wait for the op deadline."""
    (left, end), *others = ring.run("lives", "kept", seconds=60)
    told = [one for (said,) in others for one in said["told"]]
    assert len(told) == 4 and all("rank 0" in one["text"] and "left" in one["text"] for one in told), told
    assert len(left["told"]) == 2 and all(one["cause"] == "TRAINER_LEFT" for one in left["told"]), left
    assert left["kept"] == 4000 and end == {"known": True, "still": 4000.0}, (left, end)


def test_a_signals_handler_may_shut_down_during_init(ring):
    command = [*ring.environment(), sys.executable, TRAINERS / "lives.py", "-", "signalled"]
    one = ring.cluster.start_trainer("signalled", command, ring.nodes[0], 0, 2)
    deadline = time.monotonic() + 60
    while not reports(one):
        assert time.monotonic() < deadline, one.complains()[-800:]
        time.sleep(0.05)
    time.sleep(0.5)
    one.signal(signal.SIGTERM)
    assert one.wait(20) == 1, one.complains()[-1500:]


def test_the_end_of_the_daemon_is_told_by_each_call(request):
    """Also by those that are refused: which of them finds out is chance."""
    with two_nodes(request.config) as ring:
        job = ring.launch("lives", "orphaned", per_node=1)
        deadline = time.monotonic() + 60
        while not all(reports(one) for one in job):
            assert time.monotonic() < deadline, [one.complains()[-800:] for one in job]
            time.sleep(0.05)
        ring.nodes[1].daemon.signal(signal.SIGKILL)
        assert [one.wait(20) for one in job] == [0, 0], [one.complains()[-800:] for one in job]
        ring.cluster.processes.append(ring.nodes[1].run_daemon())
        ring.nodes[1].wait_ready(1)
        by_node = [reports(one)[-1]["told"] for one in job]
    for told in by_node:
        assert [(error["cause"], error["node"]) for error in told] == [("PEER_LOST", "n1")] * 3, told
    assert by_node[1][-1]["code"] == "UNAVAILABLE", by_node[1]


def test_who_shuts_down_does_not_wait_for_a_daemon_that_is_stopped(request):
    """Neither for its word that this rank has left, longer than a moment, nor for one of each piece of memory."""
    with two_nodes(request.config) as ring:
        node = ring.nodes[0]
        store = ring.cluster.folder / "store"
        command = [*ring.environment(), sys.executable, TRAINERS / "lives.py", store, "stopped"]
        one = ring.cluster.start_trainer("stopped", command, node, 0, 1)
        deadline = time.monotonic() + 60
        while not reports(one):
            assert time.monotonic() < deadline, one.complains()[-800:]
            time.sleep(0.05)
        node.daemon.signal(signal.SIGSTOP)
        try:
            store.with_name("store-stopped").touch()
            assert one.wait(20) == 0, one.complains()[-800:]
        finally:
            node.daemon.signal(signal.SIGCONT)
            one.kill()
        node.wait_ready(1)
        assert reports(one)[-1]["took"] < 6


def test_torchs_groups_of_one_store_are_told_apart(ring):
    for said in ring.run("store_again", seconds=60):
        assert said == [{"total": 4.0}] * 3
