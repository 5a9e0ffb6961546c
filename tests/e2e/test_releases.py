"""Rings of several releases: this one; the next one, which still speaks this one's protocols; and the one after, which
does not (tests/releases)."""

import os
import shutil
import signal

import pytest
from checks import OK, TRAINER, child_of, events, longest_step, wait_for, wait_for_all
from cluster import wait_until

COMING_BACK = 5.0  # the keeper starts it at once; the machine may be busy
RELEASES = {"this": "0.1.0", "next": "0.2.0", "after_next": "0.3.0"}


@pytest.fixture
def folder_of(programs):
    """Of the programs of a release."""
    def find(release):
        folder = programs if release == "this" else programs.parent / "releases" / release
        assert (folder / "gradringd").exists(), f"{folder} has no gradringd: build all"
        return folder
    return find


def install(node, folder):
    """The daemon of a release takes the place of the node's own, as a package manager puts it there."""
    node.programs = node.runtime_dir.parent / f"{node.name}-bin"
    node.programs.mkdir(exist_ok=True)
    for name in ("gradringd", "gradringctl"):
        shutil.copy(folder / name, node.programs / "new")
        os.rename(node.programs / "new", node.programs / name)


def by_ring(node):
    return node.ask("status")["counters"]["ring_submissions"]


def trainer_of(folder):
    return str(folder / TRAINER)


@pytest.mark.parametrize("trainers", ["this", "next"])
def test_a_ring_is_upgraded_and_downgraded_under_load(make_cluster, figure, folder_of, trainers):
    cluster = make_cluster(3, settings={"restart-grace": "10s"})
    for node in cluster.nodes:
        install(node, folder_of("this"))
    for index, node in enumerate(cluster.nodes):
        cluster.processes.append(node.run_daemon("--keep"))
        node.wait_ready(index)
    job = cluster.launch("upgraded", [trainer_of(folder_of(trainers)), "--ops", "100000", "--count", "100000",
                                      "--delay-ms", "3"], per_node=2)
    wait_for_all(job, "done", 20)
    mixed = set()
    for release in ("next", "this"):
        for node in cluster.nodes:
            old = child_of(node)
            install(node, folder_of(release))
            node.daemon.signal(signal.SIGUSR1)
            wait_until(lambda n=node: n.daemon_pid() not in (None, old), COMING_BACK, f"{node.name} has another daemon")
            wait_until(lambda n=node: (n.ask("status", missing_ok=True) or {}).get("version") == RELEASES[release], COMING_BACK,
                       f"{node.name} says that it is {RELEASES[release]}")
            wait_until(lambda: all(len(one.peers("up") or []) == 2 for one in cluster.nodes), COMING_BACK, "all are connected")
            ops = max(len(events(trainer, "done")) for trainer in job)
            wait_for_all(job, "done", ops + 30)
            mixed.add(tuple(sorted(peer["version"] for peer in cluster.nodes[1].peers())))
    assert ("0.1.0", "0.2.0") in mixed, mixed
    bad = [one for trainer in job for one in events(trainer, "done") if one["verdict"] != OK or not one["right"]]
    assert not bad, bad[:2]
    job.kill()
    figure(f"upgrade of 3 nodes to the next release and back, trainers of {trainers}: "
           f"{min(len(events(one, 'done')) for one in job)} ops, 0 failed, longest pause {longest_step(job):.2f} s")


@pytest.mark.parametrize("daemon, trainer", [("this", "next"), ("next", "this"), ("next", "after_next"), ("after_next", "next")])
def test_releases_side_by_side_work_together(make_cluster, folder_of, daemon, trainer):
    cluster = make_cluster(2)
    cluster.nodes[0].programs, cluster.nodes[1].programs = folder_of(daemon), folder_of(trainer)
    cluster.start()
    for node, other in (cluster.nodes, reversed(cluster.nodes)):
        assert node.peers()[0]["version"] == other.ask("status")["version"]
    job = cluster.launch("beside", [trainer_of(folder_of(trainer)), "--ops", "10"], per_node=2)
    assert job.wait(30) == [0] * 4, [one.says()[-600:] for one in job]
    cluster.nodes[0].programs = folder_of(trainer)  # and its gradringctl
    assert cluster.nodes[0].ask("status")["version"] == RELEASES[daemon]
    # Their rings have another layout each, so what differs from its daemon has none.
    wait_until(lambda: by_ring(cluster.nodes[1]) > 0, 5, "ops of trainers of the same release went by rings")
    assert by_ring(cluster.nodes[0]) == 0


def test_releases_too_far_apart_refuse_each_other_in_words(make_cluster, folder_of):
    cluster = make_cluster(2)
    old, new = cluster.nodes
    old.programs, new.programs = folder_of("this"), folder_of("after_next")
    for node in cluster.nodes:
        cluster.processes.append(node.run_daemon())
        node.wait_ready(0)
    for node in cluster.nodes:
        wait_until(lambda n=node: n.peers("refused"), 10, f"{node.name} says that it was refused")
        reason = node.peers()[0]["reason"]
        assert all(word in reason for word in ("speaks peer protocol", "0.1.0", "0.3.0", "install")), reason
    for release, node in (("this", new), ("after_next", old)):
        trainer = cluster.start_trainer("apart", [trainer_of(folder_of(release))], node, 0, 1)
        trainer.wait(20)
        told = wait_for(trainer, "refused")["message"]
        assert all(word in told for word in ("speaks client protocol", "0.1.0", "0.3.0", "install")), told
        node.programs = folder_of(release)
        status, _out, complaint = node.ctl("status")
        assert status == 3 and "speaks client protocol" in complaint, (status, complaint)
