"""More peers than control connections: the others pass on what is for those without one."""

import signal
import time

import pytest
from checks import EXCLUDED, OK, TRAINER, assert_agreed, events, longest_step, run_job, wait_failed, wait_for_all
from cluster import wait_until

NODES = 8
LINKS = 4

# docs/failure-contract.md, section 5: from a daemon's death to every rank's error, 0.5 s. The view change and a busy
# machine come on top.
GOES_ON_WITHIN = 5.0


@pytest.fixture
def ring(namespaces, make_cluster):
    return make_cluster(NODES, network=namespaces, settings={"control-links": LINKS}).start()


def test_all_meet_over_few_connections(ring):
    for node in ring.nodes:
        peers = node.peers()
        assert len(peers) == NODES - 1 and all(peer["state"] == "up" for peer in peers), peers
        assert sum(not peer["relayed"] for peer in peers) == LINKS, (node.name, peers)
    run_job(ring, "all", "--ops", "20", "--count", "100000")


def test_all_hear_that_a_node_was_stopped(ring):
    ring.nodes[3].daemon.signal(signal.SIGTERM)
    for node in ring.nodes:
        if node is not ring.nodes[3]:
            wait_until(lambda node=node: [peer["node"] for peer in node.peers("stopped")] == ["n3"], 20, f"{node.name} knows it")


def test_who_wants_a_connection_to_all_has_them(namespaces, make_cluster):
    ring = make_cluster(NODES, network=namespaces, settings={"control-links": LINKS})
    ring.configure(ring.nodes[2], control_links=64)
    ring.start()
    wait_until(lambda: not any(peer["relayed"] for peer in ring.nodes[2].peers("up")), 10, "it has connections to all")
    for node in ring.nodes:
        assert not [peer for peer in node.peers() if peer["relayed"] and peer["node"] == "n2"], node.name
        assert len(node.peers("up")) == NODES - 1
    assert any(peer["relayed"] for peer in ring.nodes[0].peers()), "the others pass on as before"
    run_job(ring, "mixed", "--ops", "20", "--count", "100000")


def test_a_job_goes_on_without_a_node_that_most_have_no_connection_to(ring, figure):
    words = [TRAINER, "--policy", "elastic", "--ops", "200", "--join-every", "5", "--delay-ms", "4", "--count", "50000"]
    job = ring.launch("over-others", words)
    wait_for_all(job, "done", 40)
    ring.nodes[5].daemon.signal(signal.SIGKILL)
    job[5].kill()
    survivors = [trainer for trainer in job if trainer is not job[5]]
    assert [one.wait(90) for one in survivors] == [0] * (NODES - 1), [one.says()[-600:] for one in survivors]
    seen = assert_agreed(survivors)
    assert seen[10][:3] == (OK, NODES, NODES) and seen[199][:3] == (OK, NODES - 1, NODES - 1)
    pause = longest_step(survivors)
    figure(f"overlay: {NODES} nodes of {LINKS} links each, a daemon killed: the others lose at most {pause:.3f} s")
    assert pause < GOES_ON_WITHIN
    assert "n5" in events(job[0], "join point")[-1]["view"]["explanation"]

    ring.processes.append(ring.nodes[5].run_daemon())
    for node in ring.nodes:
        wait_until(lambda node=node: len(node.peers("up") or []) == NODES - 1, 20, f"{node.name} has all peers again")


def test_a_daemon_that_stood_still_blames_nobody_else(ring):
    """By the time it moves again the others have given it up, and their trainers have left."""
    job = ring.launch("stood-still", [TRAINER, "--ops", "100000", "--delay-ms", "2"])
    wait_for_all(job, "done", 40)
    still = ring.nodes[5]
    still.daemon.signal(signal.SIGSTOP)
    try:
        for trainer in job:
            if trainer is not job[5]:
                assert "node n5" in wait_failed(trainer, 20)["message"]
        time.sleep(1)
    finally:
        still.daemon.signal(signal.SIGCONT)
    told = wait_failed(job[5], 10)
    assert told.get("cause", EXCLUDED) == EXCLUDED and "excluded: node n5" in told["message"], told


def test_a_node_whose_line_is_taken_away_is_shut_out_over_others_too(ring):
    """By the one daemon that reads its list anew; those that pass on what the node says still let it in."""
    one, others = ring.nodes[0], (ring.folder / "allowed-keys").read_text()
    out = next(node for node in ring.nodes for peer in one.peers() if peer["relayed"] and peer["node"] == node.name)
    one.config.write_text(one.config.read_text().replace(f"peer = {out.address}\n", ""))
    (ring.folder / "allowed-keys").write_text("".join(
        f"{line}\n" for line in others.splitlines() if line.split()[0] != out.name))
    one.daemon.signal(signal.SIGHUP)
    wait_until(lambda: f"peer {out.name} at {out.address} is lost: its key was taken out of allowed-keys"
               in one.daemon.complains(), 10, "it is given up")
    wait_until(lambda: "allowed-keys has no line for it any more" in "".join(
        peer["reason"] for peer in one.peers("refused")), 10, "it is not greeted again")
    wait_until(lambda: [peer for peer in out.peers("refused") if "has another key in allowed-keys" in peer["reason"]],
               10, "and is told why")
    assert not [peer for peer in one.peers("up") if peer["node"] == out.name]
    assert len(one.peers("up")) == NODES - 2 and len(out.peers("up")) == NODES - 2
