"""The daemon in one container and trainers in others, which share one folder and nothing else."""

import re
import subprocess
import time

import containers
import pytest
from cluster import children_of, wait_until
from conftest import ROOT, needs
from roots import Root

TABLE = re.compile(r"(?m)^ +(\d+) +\d+ +float32 +sum +-1 +(\S+) .* (\S+)$")
# A trainer that is the child of the container's first process, which kills it when it is told to.
VICTIM = "gradring-perf allreduce --min 1M --max 1M --iters 1000000 & read line; kill -KILL $!; wait $!; echo ended with $?"


@pytest.fixture(scope="module")
def engine(base, debs, tmp_path_factory):
    needs("podman", "runc")
    made = containers.Engine(tmp_path_factory.mktemp("podman"))
    try:
        if reason := made.why_not(base):
            pytest.skip(f"podman runs no containers here: {reason}")
        made.build(debs)
        yield made
    finally:
        made.close()


@pytest.fixture
def folder(tmp_path):
    """What containers see as /run/gradring. Each daemon's own."""
    made = tmp_path / "run"
    made.mkdir()
    made.chmod(0o777)  # the daemon may be root of its own user namespace alone
    return made


def shared(folder):
    return ("--volume", f"{folder}:/run/gradring")


def daemon(engine, folder, *flags):
    started = engine.start("daemon", "--node", "a", flags=(*shared(folder), *flags))
    started.wait_for("node a is ready")
    return started


def trainer(engine, folder, rank, *command, flags=containers.ONE_TENANT):
    environment = {"RANK": rank, "WORLD_SIZE": 2, "GRADRING_JOB": "first"}
    words = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
    return engine.start(f"rank{rank}", *command, flags=(*shared(folder), *words, *flags))


def measured(said):
    """{size: microseconds}; nothing may be summed wrongly."""
    rows = TABLE.findall(said)
    assert rows and {wrong for _, _, wrong in rows} == {"0"}, said
    return {int(size): float(us) for size, us, _ in rows}


def without_containers(root, tmp_path, command):
    """The same on the same machine, in no namespace, but in sessions: the kernel shares processors among those as among
    containers."""
    environment = ["env", "WORLD_SIZE=2", "GRADRING_JOB=first", "GRADRING_RUNTIME_DIR=/tmp/ring"]
    started = []
    try:
        for number, words in enumerate((["gradringd", "--node", "a"], ["RANK=0", *command], ["RANK=1", *command])):
            with open(tmp_path / f"{number}.log", "wb") as log:
                started.append(subprocess.Popen(root.command(*environment, *words), stdin=subprocess.DEVNULL, stdout=log,
                                                stderr=subprocess.STDOUT, start_new_session=True))
            wait_until(lambda: "is ready" in (tmp_path / "0.log").read_text(), 30, "the daemon is ready")
        assert [one.wait(120) for one in started[1:]] == [0, 0], (tmp_path / "1.log").read_text()
    finally:
        for one in started:
            one.terminate()
            one.wait(30)
    return measured((tmp_path / "1.log").read_text())


def test_trainers_share_one_folder_with_the_daemon_and_nothing_else(engine, installed, folder, tmp_path, capsys):
    command = ["gradring-perf", "allreduce", "--min", "6K", "--max", "96M", "--factor", "128", "--check"]
    with daemon(engine, folder) as node, trainer(engine, folder, 0, "sh", "-c", f"df -k /dev/shm; read line; {' '.join(command)}") as one:
        one.wait_for("/dev/shm")
        with trainer(engine, folder, 1, *command) as other:
            seen = [container.namespaces() for container in (node, one, other)]
            for name in seen[0]:
                if name != "user":  # the daemon's is the machine's
                    assert len({namespaces[name] for namespaces in seen}) == 3, (name, seen)
            assert seen[0]["user"] not in (seen[1]["user"], seen[2]["user"])
            one.type("")
            assert (one.wait(120), other.wait(60)) == (0, 0), one.said() + other.said()
        inside = measured(one.said())
        [kilobytes] = re.findall(r"(?m)^shm +(\d+) ", one.said())
        assert int(kilobytes) * 1024 < max(inside), "the buffers would have fitted into /dev/shm"
    with Root(installed, tmp_path / "root") as root:
        outside = without_containers(root, tmp_path, command)
    with capsys.disabled():
        print("\nallreduce of two ranks in containers, time to that without: " +
              ", ".join(f"{size} B {inside[size]:.0f} us / {outside[size]:.0f} us = {inside[size] / outside[size]:.2f}" for size in inside))


@pytest.mark.parametrize("flags", [(), ("--pid", "host")], ids=["own pids", "the machine's pids"])
def test_who_dies_in_a_container_is_told_to_the_other(engine, folder, flags):
    with daemon(engine, folder, *flags) as node, trainer(engine, folder, 1, "sh", "-c", VICTIM) as victim, \
            trainer(engine, folder, 0, "gradring-perf", "allreduce", "--min", "1M", "--max", "1M", "--iters", "1000000") as other:
        node.wait_for(") runs: 2 ranks", 60)
        [pid] = wait_until(lambda: children_of(victim.pid()), 30, "the trainer runs")
        victim.type("")
        assert other.wait(60) == 1
        # The pid is the machine's where the daemon sees the machine's processes; where it cannot see it, it names none.
        who = f"node a, pid {pid}: killed by signal 9 (SIGKILL)" if flags else "node a: the process ended"
        assert f"rank 0: trainer died: rank 1, {who}" in other.said(), other.said()
        assert victim.wait(30) == 0 and "ended with 137" in victim.said()
        assert " pid 0" not in node.said() and who in node.said(), node.said()


def test_ranks_of_different_user_namespaces_are_different_users(engine, folder):
    command = ["gradring-perf", "allreduce", "--max", "4K"]
    with daemon(engine, folder), trainer(engine, folder, 0, *command) as one, \
            trainer(engine, folder, 1, *command, flags=containers.ANOTHER) as other:
        refused = "job first belongs to uid {}; uid {} must choose another name"
        # Whoever came second.
        wait_until(lambda: refused.format(100000, 200000) in other.said() or refused.format(200000, 100000) in one.said(), 60,
                   "one of them is refused")


def test_a_daemon_in_a_user_namespace_refuses_those_whom_it_cannot_tell_apart(engine, folder):
    with daemon(engine, folder, *containers.ONE_TENANT):
        command = ["gradring-perf", "allreduce", "--max", "4K", "--check"]
        with trainer(engine, folder, 0, *command) as one, trainer(engine, folder, 1, *command) as other:
            assert (one.wait(60), other.wait(60)) == (0, 0), one.said() + other.said()
        with trainer(engine, folder, 0, *command, flags=containers.ANOTHER) as stranger:
            assert stranger.wait(60) == 1
            assert "could not tell it from other users" in stranger.said(), stranger.said()


def test_a_daemon_that_is_stopped_has_the_time_to_drain(engine, folder):
    """With the flag of docs/containers.md: engines kill after 10 s what has not ended."""
    [flag] = re.findall(r"(?m)^    podman run .*(--stop-timeout \d+) ", (ROOT / "docs/containers.md").read_text())
    with daemon(engine, folder, *flag.split()) as node:
        job = ["gradring-perf", "allreduce", "--ranks", "1", "--min", "64K", "--max", "64K", "--iters", "100000000"]
        with engine.start("job", *job, flags=shared(folder)):
            node.wait_for(") runs: 1 rank", 60)
            stop = subprocess.Popen(engine.command("stop", "daemon"), stdout=subprocess.DEVNULL)
            time.sleep(13)
            assert stop.poll() is None, "it did not wait for the job: " + node.said()
        assert node.wait(30) == 0, node.said()
        assert stop.wait(30) == 0
