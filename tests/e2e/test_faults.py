"""Faults of the list in docs/reliability.md that no other file has: each says what was done, what the ranks were
told, after how long, and who was blamed."""

import collections
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checks import EXCLUDED, FAILED, OK, TRAINER, bad_news, events, settle, wait_failed, wait_for, wait_for_all
from cluster import Process, run, wait_until
from test_elastic import ELASTIC, NO_QUORUM, assert_agreed, elastic

# The contract says 5 s for a silence; see test_deaths.py.
SOON = 20
SETTINGS = {"quorum-wait": "2s"}


@pytest.fixture
def parted(make_cluster, namespaces):
    """Four nodes whose links can be cut, and an elastic job that runs for longer than any story here."""
    cluster = make_cluster(4, network=namespaces, settings=SETTINGS).start()
    job = elastic(cluster, "story", 100000)
    wait_for_all(job, "done", 20)
    return cluster, job


def come_back(cluster, rank):
    """Another trainer in the place of one whose job went on without it."""
    return cluster.start_trainer("story", [TRAINER, "--policy", "elastic", "--ops", "100000", *ELASTIC],
                                 cluster.nodes[rank], rank, 4)


def ops_of(trainer):
    done = events(trainer, "done")
    return done[-1]["op"] if done else 0


def assert_gets_on(trainers, ops=20):
    """They do so many more ops together."""
    target = max(ops_of(one) for one in trainers) + ops
    wait_for_all(trainers, "done", target, seconds=60)


def last_view(trainer):
    return events(trainer, "join point")[-1]["view"]


def tell(figure, what, moment, told):
    last = max(one["time"] for one in told)
    figure(f"{what}: told within {last - moment:.2f} s: {told[0]['message'][:150]}")


def agreed_so_far(trainers):
    """As assert_agreed, of trainers that still run."""
    seen = {}
    for trainer in trainers:
        for one in events(trainer, "done"):
            said = (one["verdict"], one["ranks"], one["ranks_max"], one.get("hash"))
            assert one["verdict"] in (1, 2) and one["right"], (trainer.name, one)
            assert seen.setdefault(one["op"], said) == said, (trainer.name, one, seen[one["op"]])
    return seen


def test_a_rank_that_leaves_an_elastic_job_is_no_error(quad, figure):
    """Scenario 4."""
    job = elastic(quad, "leaves", 120, of_rank={2: ["--at", "40", "--act", "leave"]})
    assert job.wait(60) == [0] * 4, [one.says()[-600:] for one in job]
    stayed = [job[0], job[1], job[3]]
    assert not [e for one in stayed for e in bad_news(one) if e.get("verdict", FAILED) == FAILED]
    seen = assert_agreed(stayed)
    assert seen[30][1] == 4 and seen[119][1] == 3
    figure(f"a rank leaves an elastic job: no error; {last_view(job[0])['explanation'][:150]}")


def test_a_daemon_that_stands_still_is_fenced_and_comes_back(make_cluster, figure):
    """Scenario 9. Below a second nobody minds; beyond `decide` the others go on without it."""
    cluster = make_cluster(4, settings=SETTINGS).start()
    job = elastic(cluster, "story", 100000)
    wait_for_all(job, "done", 20)
    frozen = cluster.nodes[1].daemon
    frozen.signal(signal.SIGSTOP)
    time.sleep(0.6)
    frozen.signal(signal.SIGCONT)
    assert_gets_on(job)
    assert last_view(job[0])["size"] == 4
    moment = time.monotonic()
    frozen.signal(signal.SIGSTOP)
    others = [job[0], job[2], job[3]]
    settle(lambda: last_view(job[0])["size"] == 3, "the others go on without the frozen node")
    figure(f"daemon stopped: the others are on their way again after {time.monotonic() - moment:.2f} s: "
           f"{last_view(job[0])['explanation'][:150]}")
    assert "node n1" in last_view(job[0])["explanation"]
    frozen.signal(signal.SIGCONT)
    told = wait_failed(job[1], SOON)
    assert told.get("cause", EXCLUDED) in (EXCLUDED, NO_QUORUM), told
    back = come_back(cluster, 1)
    wait_for(back, "state", seconds=40)
    assert_gets_on([*others, back])
    agreed_so_far([*others, back])
    for one in (*job, back):
        one.kill()


@pytest.mark.parametrize("direction", ["in", "out"])
def test_a_link_that_is_cut_one_way(parted, figure, direction):
    """Scenario 12: one verdict on both sides, and no flapping."""
    cluster, job = parted
    moment = time.monotonic()
    cluster.network.drop(2, [direction])
    told = [wait_failed(job[2], SOON)]
    assert told[0].get("cause", EXCLUDED) in (EXCLUDED, NO_QUORUM), told
    tell(figure, f"nothing comes {direction} at n2 any more", moment, told)
    others = [job[0], job[1], job[3]]
    settle(lambda: last_view(job[0])["size"] == 3, "the others go on")
    assert "n2" in last_view(job[0])["explanation"]
    assert_gets_on(others, 50)
    assert last_view(job[0])["size"] == 3
    agreed_so_far(others)
    cluster.network.stop_dropping(2, [direction])
    back = come_back(cluster, 2)
    wait_for(back, "state", seconds=40)
    assert_gets_on([*others, back])
    agreed_so_far([*others, back])
    for one in (*job, back):
        one.kill()


def test_of_two_halves_one_goes_on(parted, figure):
    """Scenario 13: nodes 0 and 1 against 2 and 3. The half with the lowest node trains on, the other gives up."""
    cluster, job = parted
    moment = time.monotonic()
    between = [(node, peer) for node in (2, 3) for peer in (0, 1)]
    for node, peer in between:
        cluster.network.drop(node, peer=peer)
    told = [wait_failed(job[rank], SOON) for rank in (2, 3)]
    assert all(one.get("cause", NO_QUORUM) == NO_QUORUM for one in told), told
    tell(figure, "four nodes in two halves", moment, told)
    assert_gets_on([job[0], job[1]])
    assert last_view(job[0])["ranks"] == [0, 1]
    for node, peer in between:
        cluster.network.stop_dropping(node, peer=peer)
    back = [come_back(cluster, rank) for rank in (2, 3)]
    wait_for_all(back, "state", seconds=60)
    assert_gets_on([job[0], job[1], *back])
    agreed_so_far([job[0], job[1], *back])
    for one in (*job, *back):
        one.kill()


def test_a_switch_that_starts_anew_costs_nobody(make_cluster, namespaces, figure):
    """Scenario 13: no node reaches any other for longer than `decide`; then all do, and go on together."""
    cluster = make_cluster(4, network=namespaces).start()
    job = cluster.launch("story", [TRAINER, "--policy", "elastic min=3", "--ops", "100000", *ELASTIC])
    wait_for_all(job, "done", 20)
    for node in range(4):
        cluster.network.cut(node)
    time.sleep(5)
    stood_at = max(ops_of(one) for one in job)
    for node in range(4):
        cluster.network.mend(node)
    began = time.monotonic()
    wait_for_all(job, "done", stood_at + 20, seconds=SOON)
    figure(f"a switch is away for 5 s: all 4 are on their way again {time.monotonic() - began:.1f} s after it is back; "
           f"{last_view(job[0])['explanation']}")
    assert all(not bad_news(one) for one in job)
    assert {key[:3] for key in agreed_so_far(job).values()} == {(OK, 4, 4)}
    for one in job:
        one.kill()


def test_links_clog_one_by_one_and_heal_in_another_order(parted, figure):
    """Scenario 14: in the end all are in one job again, and no epoch came twice."""
    cluster, job = parted
    chance = random.Random(14)
    order = [1, 2, 3]
    chance.shuffle(order)
    current = dict(enumerate(job))
    gone = []
    moment = time.monotonic()
    for node in order:
        cluster.network.drop(node)
        time.sleep(0.4)
    time.sleep(4)
    chance.shuffle(order)
    for node in order:
        cluster.network.stop_dropping(node)
        time.sleep(0.4)

    def whole():
        """All are in one view; whoever was given up is started anew."""
        for rank, one in list(current.items()):
            if not one.running():
                gone.append(one)
                current[rank] = come_back(cluster, rank)
        views = [events(one, "join point") for one in current.values()]
        return all(one and one[-1].get("view", {}).get("size") == 4 for one in views)
    deadline = time.monotonic() + 90
    while not whole():
        assert time.monotonic() < deadline, {r: one.says()[-300:] for r, one in current.items()}
        time.sleep(0.1)
    figure(f"links clog one by one: whole again after {time.monotonic() - moment:.1f} s, {len(gone)} trainers "
           "were started anew")
    assert_gets_on(list(current.values()))
    seen = {}
    for one in [*current.values()]:
        for view in (e["view"] for e in events(one, "join point") if "view" in e):
            assert seen.setdefault(view["epoch"], view["ranks"]) == view["ranks"]
    for one in (*current.values(), *gone):
        one.kill()


def test_a_link_that_flaps_costs_no_op(parted, figure):
    """Scenario 15, with one link a node: each time a stall, and nobody is given up."""
    cluster, job = parted
    for _ in range(5):
        cluster.network.set_link(2, "down")
        time.sleep(0.6)
        cluster.network.set_link(2, "up")
        time.sleep(1.5)
    assert_gets_on(job)
    assert all(not bad_news(one) for one in job)
    seen = agreed_so_far(job)
    times = [one["time"] for one in events(job[0], "done")]
    figure(f"a link flaps 5 times for 0.6 s: {len(seen)} ops, none failed, the longest stall "
           f"{max(b - a for a, b in zip(times, times[1:])):.2f} s, view {last_view(job[0])['epoch']}")
    assert last_view(job[0])["size"] == 4
    for one in job:
        one.kill()


def test_lost_packets_cost_time_only(parted, figure):
    """Scenario 19, loss: one packet in a hundred, both ways, at two nodes."""
    cluster, job = parted
    for node in (1, 3):
        cluster.network.drop(node, share=0.01)
    began, before = time.monotonic(), ops_of(job[0])
    assert_gets_on(job, 200)
    figure(f"1 % of the packets lost at two of four nodes: {(ops_of(job[0]) - before) / (time.monotonic() - began):.0f} "
           "ops/s of 200 kB, none failed")
    assert all(not bad_news(one) for one in job)
    agreed_so_far(job)
    assert last_view(job[0])["size"] == 4
    for one in job:
        one.kill()


def test_repeated_and_reordered_packets_cost_time_only(make_cluster, namespaces, figure):
    """Scenario 19, the rest: at one of three nodes, a relay sends one frame in a hundred twice and one in fifty late."""
    cluster = make_cluster(3, network=namespaces)
    relay = Process("relay", [sys.executable, Path(__file__).with_name("relay.py"), "near", "far", "0.01", "0.02"],
                    cluster.folder, cluster.mark, prefix=cluster.network.within())
    cluster.processes.append(relay)
    wait_until(lambda: "ready" in relay.says(), 10, "the relay has made its devices")
    cluster.network.replace_cable(1, "near", "far")
    cluster.start()
    began = time.monotonic()
    job = cluster.launch("cable", [TRAINER, "--ops", "60", "--count", "200000"])
    assert job.wait(120) == [0] * 3, [one.says()[-600:] for one in job]
    assert all(one["verdict"] == OK and one["right"] for trainer in job for one in events(trainer, "done"))
    seconds = time.monotonic() - began
    figure(f"1 % of the frames twice and 2 % late at one of three nodes: {60 / seconds:.0f} ops/s of 800 kB, none failed")


def test_a_slow_link_is_pointed_out(make_cluster, namespaces, figure):
    """Scenario 20: one node sends at a tenth of what the others do. The job goes on, and `gradringctl job` says that what
    all wait for is data, and behind which link: at the node that comes next in the ring."""
    cluster = make_cluster(4, network=namespaces).start()
    for node in range(4):
        cluster.network.slow_down(node, "40mbit" if node == 2 else "400mbit")
    job = cluster.launch("slow", [TRAINER, "--ops", "6", "--count", "500000"])
    wait_for_all(job, "submitted")
    behind = collections.Counter()
    while any(one.running() for one in job):
        for known in (cluster.nodes[0].ask("job", "slow", missing_ok=True) or {}).get("ops", []):
            if known["waits_for"] == "data":
                behind[known["slices_final_at"]] += 1
        time.sleep(0.05)
    assert job.wait(1) == [0] * 4, [one.says()[-600:] for one in job]
    assert all(one["verdict"] == OK and one["right"] for trainer in job for one in events(trainer, "done"))
    figure(f"one link at a tenth of the others: 6 ops of 2 MB went well; gradringctl saw the data late at {dict(behind)}")
    assert behind.most_common(1)[0][0] == "n3", behind


@pytest.fixture
def small_disk(tmp_path):
    """A file system with little room that a test can fill up."""
    folder = tmp_path / "disk"
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder)
    folder.chmod(0o755)
    yield folder
    run("umount", "-l", folder)


def fill(folder):
    with pytest.raises(OSError, match="No space"), open(folder / "junk", "wb", buffering=0) as junk:
        while junk.write(bytes(1 << 16)) == 1 << 16:
            pass
        raise OSError("No space for the rest")


@pytest.mark.parametrize("full_since", ["before the start", "in the middle"])
def test_a_full_disk_stops_nothing(small_disk, make_cluster, figure, full_since):
    """Scenario 25: runtime folder and log of one of two daemons lie on a disk without room."""
    cluster = make_cluster(2)
    node = cluster.nodes[1]
    node.runtime_dir = small_disk / "run"
    node.runtime_dir.mkdir(mode=0o755)
    cluster.configure(node)
    if full_since == "before the start":
        fill(small_disk)
    cluster.start()
    job = cluster.launch("disk", [TRAINER, "--ops", "60", "--delay-ms", "10"], per_node=2)
    wait_for_all(job, "done", 10)
    if full_since == "in the middle":
        fill(small_disk)
    assert job.wait(60) == [0] * 4, [one.says()[-600:] for one in job]
    assert all(one["verdict"] == OK and one["right"] for trainer in job for one in events(trainer, "done"))
    status, told, complaint = node.ctl("flight-recorder", "disk")
    if full_since == "before the start":
        assert "no flight recorder" in node.log(50) and "No space left" in node.log(50), node.log(50)
        assert status == 3, (status, told, complaint)
    else:
        assert status == 0 and "op done" in told, (status, told, complaint)
    figure(f"disk full {full_since}: 60 ops went well; the daemon says: "
           + (node.log(50).split("warning: ")[1].splitlines()[0][:110] if "warning" in node.log(50) else "nothing to add"))


def test_a_log_that_cannot_be_written_stops_nothing(make_cluster):
    """Scenario 25: all that a daemon prints meets a device without room."""
    cluster = make_cluster(2)
    for node in cluster.nodes:
        node.prefix = [*node.prefix, "sh", "-c", 'exec "$@" 2>/dev/full >/dev/full', "sh"]
    cluster.configure(cluster.nodes[0], log_level="debug")
    cluster.start()
    job = cluster.launch("mute", [TRAINER, "--ops", "30"], per_node=2)
    assert job.wait(60) == [0] * 4, [one.says()[-600:] for one in job]
    assert all(one["verdict"] == OK and one["right"] for trainer in job for one in events(trainer, "done"))


def test_an_answer_that_cannot_be_written_is_told_in_words(single):
    """A disk without room, and answers longer and shorter than what a program keeps to write later."""
    here = ["--runtime-dir", single.nodes[0].runtime_dir]
    for name, *words in (["gradringd", "--help"], ["gradringd", "--check-config", *here], ["gradringctl", *here, "status"],
                         ["gradringctl", *here, "--json", "topology"], ["gradringctl", *here, "events", "--follow"],
                         ["gradring-perf", "allreduce", "--ranks", "2", "--max", "4K", *here]):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([single.program(name), *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                                  check=False)
        assert done.returncode == 1 and "cannot write" in done.stderr, (name, words, done)
