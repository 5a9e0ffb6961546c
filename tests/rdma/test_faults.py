"""Cards, cables and daemons that fail while gradients go over verbs: docs/failure-contract.md holds as over TCP."""

import json
import re
import time

from ring import DECIDE, SOON, SUSPECT, TRAINER, address, events

PEER_LOST, PEER_SILENT = 4, 5
LONG = f"{TRAINER} --ops 100000 --count 20000"


def working(ring, job):
    """A job whose ops are under way."""
    ranks = ring.launch(job, LONG)
    for rank in ranks:
        rank.wait_for('"op":3,', SOON)
    return ranks


def told(rank, *causes):
    """What ended the job of a rank, which must be blamed on the other guest."""
    rank.wait(SOON)
    bad = [one for one in events(rank, "done") + events(rank, "refused") if one.get("cause")]
    assert bad, rank.last_words()
    assert bad[0]["cause"] in causes, bad[0]
    return bad[0]


def test_a_killed_daemon_is_named(guests, make_ring):
    ring = make_ring()
    ranks = working(ring, "killed")
    guests[1].run("killall -KILL gradringd", seconds=SOON)
    assert "node b" in told(ranks[0], PEER_LOST)["message"]
    ranks[1].wait(SOON)
    assert ring.daemons[0].status is None, ring.daemons[0].last_words()


def test_a_cut_cable_is_silence_and_a_mended_one_is_used_again(guests, make_ring):
    ring = make_ring()
    ranks = working(ring, "cut")
    guests[1].carrier(0, False)
    try:
        for rank in ranks:
            told(rank, PEER_SILENT, PEER_LOST)
    finally:
        guests[1].carrier(0, True)
    ring.wait_joined(DECIDE + SOON)
    ring.run("mended", f"{TRAINER} --ops 3")


def test_a_lost_card_of_two_costs_no_op_and_a_mended_one_is_used_again(guests, make_ring):
    ring = make_ring(devices=("rxe0", "rxe1"), control=1)
    ranks = ring.launch("rails", f"{TRAINER} --ops 300 --count 20000 --delay-ms 50")
    for rank in ranks:
        rank.wait_for('"op":3,', SOON)
    guests[1].carrier(0, False)
    try:
        assert [rank.wait(SOON * 2) for rank in ranks] == [0, 0], [rank.last_words() for rank in ranks]
        ring.wait_joined(lanes="1 of 2")
    finally:
        guests[1].carrier(0, True)
    ring.wait_joined(lanes="2 of 2")
    ring.run("both", f"{TRAINER} --ops 3")


def test_what_happens_to_a_port_is_said_at_once(guests, make_ring, figure):
    ring = make_ring(devices=("rxe0", "rxe1"), control=1)
    here, there = ring.daemons[1], ring.daemons[0]
    ranks = ring.launch("at-once", f"{TRAINER} --ops 300 --count 20000 --delay-ms 50")
    for rank in ranks:
        rank.wait_for('"op":3,', SOON)
    began = time.monotonic()
    guests[1].carrier(0, False)
    try:
        here.wait_for("port rxe0:1 of lane 0 is down", SOON)
        said = time.monotonic() - began
        here.wait_for("its port rxe0:1 is down; the others go on", SOON)
        there.wait_for("the other end lost it; the others go on", SOON)
        given_up = time.monotonic() - began
        assert [rank.wait(SOON * 2) for rank in ranks] == [0, 0], [rank.last_words() for rank in ranks]
    finally:
        guests[1].carrier(0, True)
    figure(f"a port down: said after {said * 1000:.0f} ms, its lane given up at both ends after "
           f"{given_up * 1000:.0f} ms; heartbeats say it after {SUSPECT} s")
    assert given_up < SUSPECT
    here.wait_for("port rxe0:1 of lane 0 is active again", SOON)
    ring.wait_joined(lanes="2 of 2")

    began = time.monotonic()
    guests[1].run("ip addr add 10.9.0.1/32 dev eth0; ip addr del 10.9.0.1/32 dev eth0", seconds=SOON)
    here.wait_for("port rxe0:1 of lane 0 has other addresses", SOON)
    figure(f"a GID that came and went: said after {(time.monotonic() - began) * 1000:.0f} ms")

    def counters():
        port = json.loads(ring.ask(1, "topology --json"))["nodes"][0]["lanes"][0]["ports"][0]
        return {one["name"]: one["value"] for one in port["counters"]} | {"state": port["state"]}

    deadline = time.monotonic() + SOON
    while counters().get("link_downed", 0) == 0 and time.monotonic() < deadline:
        time.sleep(1)
    figure(f"what the port counted: {counters()}")
    assert counters()["state"] == "active"
    assert counters()["link_downed"] >= 1
    ring.run("both-again", f"{TRAINER} --ops 3")


def test_an_address_that_changes_takes_the_lane_with_it(guests, make_ring):
    """The card's GID goes with its address, and with the GID what is connected by it.

    UCX ends a process whose queue pairs lost their GID, so the daemon is started anew by its keeper.
    """
    ring = make_ring(control=1, keep=True)
    ranks = working(ring, "moved")
    guests[1].run(f"ip addr del {address(0, 1)}/24 dev eth0; ip addr add 10.0.0.9/24 dev eth0", seconds=SOON)
    try:
        for rank in ranks:
            told(rank, PEER_SILENT, PEER_LOST)
        moved = ring.daemons[1]
        guests[1].wait_until(lambda: moved.complains().count("is ready") == 2, SOON, "gradringd is ready again", moved)
        assert ring.daemons[0].complains().count("is ready") == 1, ring.daemons[0].last_words()
        ring.wait_joined()
        ring.run("settled", f"{TRAINER} --ops 3")
    finally:
        guests[1].run(f"ip addr del 10.0.0.9/24 dev eth0; ip addr add {address(0, 1)}/24 dev eth0", seconds=SOON)


def test_too_little_lockable_memory_is_refused_in_words(guests):
    said = guests[0].start("mkdir -p /run/other && chown nobody /run/other && ulimit -l 64 && exec /usr/bin/setpriv "
                           "--reuid 65534 --regid 65534 --clear-groups "
                           "gradringd --runtime-dir /run/other --net-device rxe0", "memlock")
    assert said.wait(SOON) == 2
    refusal = r"rxe0:1 is an RDMA device .* only 64 KiB of memory may be locked"
    assert re.search(refusal, said.complains()), said.last_words()
