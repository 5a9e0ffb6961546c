"""A daemon that is kept (`gradringd --keep`) dies: its keeper brings it back, and nobody is turned away meanwhile."""

import os
import shutil
import signal
import socket
import time
from pathlib import Path

from checks import TRAINER, child_of, events, run_job, wait_for_all
from cluster import wait_until
from cluster.process import state_of

# The keeper pauses 0.2 s and the daemon starts in 0.05. These tests share two busy processors with others.
SOON = 5.0
SOCKETS = ("attach.sock", "control.sock")


def kept_node(make_cluster, *flags, **options):
    cluster = make_cluster(1, **options)
    node = cluster.nodes[0]
    cluster.processes.append(node.run_daemon("--keep", *flags))
    node.wait_ready(0)
    return cluster, node


def kill_child(node):
    """Returns when it is gone and its keeper has not started another."""
    pid = child_of(node)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: state_of(pid) is None, SOON, f"the daemon {pid} is gone")
    return pid


def listeners(node):
    """{file name: inode} of the listening sockets in the runtime directory."""
    found = {}
    for line in Path(f"/proc/{node.daemon.pid}/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and Path(fields[7]).parent == node.runtime_dir and int(fields[3], 16) & 0x10000:
            found[Path(fields[7]).name] = int(fields[6])
    return found


def wait_restarted(node, old):
    def restarted():
        status = node.ask("status", missing_ok=True)
        return status and status["pid"] != old
    wait_until(restarted, SOON, f"{node.name} is back")


def connect(node, name, kind):
    one = socket.socket(socket.AF_UNIX, kind)
    one.settimeout(SOON)
    one.connect(str(node.runtime_dir / name))
    return one


def test_killed_daemon_is_back_with_its_sockets(make_cluster, figure):
    cluster, node = kept_node(make_cluster)
    before = listeners(node)
    assert set(before) == set(SOCKETS), before
    for _ in range(3):
        moment = time.monotonic()
        old = kill_child(node)
        wait_restarted(node, old)
        seconds = time.monotonic() - moment
        assert seconds < SOON
        assert listeners(node) == before
        time.sleep(2.5)  # below the limit of five starts in ten seconds
    figure(f"kept daemon killed: answers again after {seconds:.3f} s")
    run_job(cluster, "after", "--ops", "3", per_node=2)


def test_client_that_connects_in_the_gap_is_served(make_cluster):
    cluster, node = kept_node(make_cluster)
    old = kill_child(node)
    with connect(node, "attach.sock", socket.SOCK_SEQPACKET) as attach, \
            connect(node, "control.sock", socket.SOCK_STREAM) as control:
        assert not node.daemon_pid(), "the daemon was back before the clients came; they prove nothing"
        attach.send(b"\xff no message of ours")
        assert b"malformed" in attach.recv(4096)
        assert control.recv(1) == b"\xff", "the greeting of ZMTP"
    assert child_of(node) != old


def test_trainer_that_starts_in_the_gap_joins(make_cluster):
    cluster, node = kept_node(make_cluster)
    kill_child(node)
    job = run_job(cluster, "gap", "--ops", "3", per_node=2)
    assert {one["size"] for trainer in job for one in events(trainer, "joined")} == {2}


def test_upgrade_takes_the_program_that_is_there_then(make_cluster):
    cluster = make_cluster(1)
    node = cluster.nodes[0]
    original = cluster.program("gradringd")
    installed = cluster.folder / "bin"
    installed.mkdir()
    for name in ("gradringd", "gradringctl", TRAINER):
        shutil.copy(cluster.program(name), installed / name)
    cluster.programs = installed
    cluster.processes.append(node.run_daemon("--keep"))
    node.wait_ready(0)
    before = listeners(node)
    old = child_of(node)
    shutil.copy(original, installed / "new")
    os.rename(installed / "new", installed / "gradringd")
    node.daemon.signal(signal.SIGUSR1)
    wait_restarted(node, old)
    assert os.path.samefile(f"/proc/{child_of(node)}/exe", installed / "gradringd")
    assert not os.path.samefile(f"/proc/{node.daemon.pid}/exe", installed / "gradringd")
    assert listeners(node) == before
    run_job(cluster, "upgraded", "--ops", "3", per_node=2)


def test_sigusr1_to_the_daemon_itself_brings_the_next_one(make_cluster):
    """As of `pkill -USR1 gradringd`, which reaches both."""
    cluster, node = kept_node(make_cluster, "--restart-grace", "20s")
    job = cluster.launch("goes-on", [TRAINER, "--ops", "100000", "--delay-ms", "2"])
    wait_for_all(job, "done", 2)
    for also_keeper in (False, True):
        old = child_of(node)
        os.kill(old, signal.SIGUSR1)
        if also_keeper:
            node.daemon.signal(signal.SIGUSR1)
        wait_restarted(node, old)
        assert "took over" in node.log() and job[0].running()
        done = len(events(job[0], "done"))
        wait_for_all(job, "done", done + 2)
    job.kill()


def test_sigterm_ends_both_and_leaves_nothing(make_cluster):
    cluster, node = kept_node(make_cluster)
    daemon = child_of(node)
    assert node.stop() is None
    assert state_of(daemon) is None
    assert sorted(path.name for path in node.runtime_dir.iterdir()) == ["flight-recorder", "keeper.lock", "lock"]


def test_daemon_dies_with_its_keeper(make_cluster):
    cluster, node = kept_node(make_cluster)
    daemon = child_of(node)
    node.daemon.kill()
    wait_until(lambda: state_of(daemon) is None, SOON, "the daemon is gone with its keeper")
    cluster.processes.append(node.run_daemon("--keep"))
    node.wait_ready(0)
    run_job(cluster, "anew", "--ops", "3")


def test_daemon_that_dies_again_and_again_is_given_up(make_cluster):
    cluster, node = kept_node(make_cluster)
    for _ in range(5):
        kill_child(node)
    assert node.daemon.wait(SOON) == 1
    assert "5 times within 10 s" in node.log(30)
    cluster.processes.append(node.run_daemon("--keep"))
    node.wait_ready(0)
    run_job(cluster, "anew", "--ops", "3")
