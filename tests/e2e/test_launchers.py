"""Slurm, Open MPI and MPICH start the trainers, over four nodes with two ranks each; or gradring-run becomes one
of them."""

import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from checks import FAILED, OK, OK_SHRUNK, TRAINER, TRAINER_DIED

import cluster as testbed

NODES, PER_NODE = 4, 2
RANKS = NODES * PER_NODE
HOSTS = ",".join(f"n{node}:{PER_NODE}" for node in range(NODES))
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
PLACES = [(rank, rank % PER_NODE, f"n{rank // PER_NODE}") for rank in range(RANKS)]

needs_slurm = pytest.mark.skipif(testbed.why_no_slurm() is not None, reason=str(testbed.why_no_slurm()))


def has_open_mpi():
    return shutil.which("mpirun") is not None and "Open MPI" in testbed.run("mpirun", "--version")


needs_mpirun = pytest.mark.skipif(not has_open_mpi(), reason="there is no mpirun of Open MPI (Debian's openmpi-bin)")

# The nodes of one machine see the same files, so the folder of each one's daemon has its host's name.
AT_ITS_DAEMON = 'GRADRING_RUNTIME_DIR=$FOLDERS/$(hostname) exec "$@"'

# A daemon beside the system's, which knows its own address and no other.
A_DAEMON = """
name=$(hostname) address=$(getent hosts "$(hostname)" | cut -d" " -f1)
mkdir -m 755 "$FOLDERS/of-step-$name"
exec "$0" --insecure --node "$name" --listen "$address:7400" --runtime-dir "$FOLDERS/of-step-$name" --discover slurm:7400
"""

# ssh's part: a login on another node, which knows nothing of the environment here.
REMOTE = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1; shift
exec ip netns exec {space}-$host unshare --uts \\
  env -i PATH="$PATH" CLUSTER_RUN="$CLUSTER_RUN" FOLDERS="$FOLDERS" sh -c "hostname $host && $*"
"""


@pytest.fixture(scope="module")
def ring(programs, namespaces):
    made = testbed.Cluster(programs, NODES, namespaces)
    try:
        yield made.start()
    finally:
        complaints = made.close()
    assert not complaints, "\n".join(complaints)


@pytest.fixture(scope="module")
def slurm(ring):
    made = testbed.Slurm(ring)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def remote(ring):
    path = ring.folder / "remote"
    path.write_text(REMOTE.format(space=ring.network.name))
    path.chmod(0o755)
    return path


class Launch:
    """What a launcher printed: the lines of all its trainers, one after another."""

    def __init__(self, process):
        self.process = process

    def events(self, kind):
        lines = [line[line.index("{"):] for line in self.process.says().splitlines()
                 if line.startswith("{") and line.endswith("}")]
        return [one for one in map(json.loads, lines) if one["event"] == kind]

    def wait_for(self, kind, count, seconds=40):
        testbed.wait_until(lambda: len(self.events(kind)) >= count or not self.process.running(), seconds,
                           f"{count} trainers say '{kind}'")
        assert len(self.events(kind)) >= count, self.told()
        return self.events(kind)

    def told(self):
        return f"{self.process.status}: {self.process.says()[-1500:]}\n{self.process.complains()[-1500:]}"


def trainer(ring, *words):
    return ["sh", "-c", AT_ITS_DAEMON, "sh", ring.program(TRAINER), *words]


def assert_all_right(launch, ops, seconds=40):
    assert launch.process.wait(seconds) == 0, launch.told()
    assert sorted((one["rank"], one["local_rank"], one["node"]) for one in launch.events("joined")) == PLACES
    done = launch.events("done")
    assert len(done) == ops * RANKS and all(one["right"] and one["ranks"] == RANKS for one in done), done


def names_of_jobs(ring, state=None):
    return {job["name"] for job in ring.nodes[0].ask("jobs")["jobs"] if state in (None, job["state"])}


def told_of(launch, culprit):
    """How many trainers were told whose death it was: by an op that was under way, or by the refusal of the next."""
    failed = [one for one in launch.events("done") if one["verdict"] == FAILED]
    assert all((one["cause"], one["blamed_rank"], one["blamed_node"], one["blamed_pid"]) == (
        TRAINER_DIED, culprit["rank"], culprit["node"], culprit["pid"]) for one in failed), failed
    refused = launch.events("refused")
    assert all(f"rank {culprit['rank']}" in one["message"] and f"pid {culprit['pid']}" in one["message"]
               for one in refused), refused
    return len(failed) + len(refused)


@needs_slurm
class TestSrun:
    @pytest.fixture
    def start(self, ring, slurm):
        def start(name, *command):
            return Launch(slurm.process(name, list(command), FOLDERS=str(ring.folder)))
        yield start
        slurm.cancel_all()

    def test_daemons_of_a_step_find_each_other_by_the_node_list(self, ring, start):
        begun = start("daemons", "srun", f"-N{NODES}", "--ntasks-per-node=1", "sh", "-c", A_DAEMON, ring.program("gradringd"))

        def up(name):
            done = subprocess.run([ring.program("gradringctl"), "--json", "--runtime-dir", ring.folder / f"of-step-{name}", "peers"],
                                  capture_output=True, text=True, timeout=20, check=False)
            return sorted(peer["node"] for peer in json.loads(done.stdout or '{"peers": []}')["peers"] if peer["state"] == "up")
        names = [node.name for node in ring.nodes]
        for name in names:
            testbed.wait_until(lambda name=name: up(name) == [one for one in names if one != name] or not begun.process.running(),
                               40, f"{name} has met the others")
        assert begun.process.running(), begun.told()

    @pytest.mark.parametrize("mpi", ["none", "pmi2", "pmix"])
    def test_each_rank_has_its_place(self, ring, start, mpi):
        known = start(f"srun-list-{mpi}", "srun", "--mpi=list").process
        assert known.wait(20) == 0
        if mpi not in (known.says() + known.complains()).split():
            pytest.skip(f"this Slurm has no --mpi={mpi}")
        before = names_of_jobs(ring)
        launch = start(f"srun-{mpi}", "srun", f"--mpi={mpi}", f"-N{NODES}", f"--ntasks-per-node={PER_NODE}",
                       *trainer(ring, "--ops", "3"))
        assert_all_right(launch, 3)
        (name,) = names_of_jobs(ring) - before
        assert re.fullmatch(r"\d+\.0", name), name

    def test_a_killed_rank_is_told_to_all(self, ring, start):
        launch = start("srun-killed", "srun", f"-N{NODES}", f"--ntasks-per-node={PER_NODE}",
                       *trainer(ring, "--ops", "100000", "--delay-ms", "5"))
        launch.wait_for("done", RANKS)
        culprit = next(one for one in launch.wait_for("joined", RANKS) if one["rank"] == 5)
        os.kill(culprit["pid"], signal.SIGKILL)
        assert launch.process.wait(20) != 0
        assert told_of(launch, culprit) == RANKS - 1, launch.told()

    def test_two_steps_of_an_allocation_are_two_jobs(self, ring, start):
        step = f'srun --exact -N{NODES} -n{RANKS} --ntasks-per-node={PER_NODE} "$@"'
        launch = start("steps", "salloc", f"-N{NODES}", f"--ntasks-per-node={2 * PER_NODE}", "sh", "-c",
                       f"{step} & {step} & wait", "sh", *trainer(ring, "--ops", "100000", "--delay-ms", "5"))
        joined = launch.wait_for("joined", 2 * RANKS)
        assert sorted((one["rank"], one["local_rank"], one["node"]) for one in joined) == sorted(PLACES * 2)
        testbed.wait_until(lambda: len(names_of_jobs(ring, "running")) == 2, 20, "two jobs run")
        (first, zero), (second, one) = sorted(name.split(".") for name in names_of_jobs(ring, "running"))
        assert first == second and (zero, one) == ("0", "1")

    def test_gradring_run_becomes_srun(self, ring, start):
        launch = start("becomes", "salloc", f"-N{NODES}", "--exclusive", ring.program("gradring-run"), "--verbose",
                       "-np", str(RANKS), *trainer(ring, "--ops", "3"))
        assert_all_right(launch, 3)
        assert "gradring-run: becomes srun" in launch.process.complains()

    def test_gradring_run_ends_all_when_one_fails(self, ring, start):
        launch = start("fails", "salloc", f"-N{NODES}", "--exclusive", ring.program("gradring-run"), "-np", str(RANKS),
                       "sh", "-c", '[ "$SLURM_PROCID" != 6 ] || exit 7; sleep 100')
        # srun's own code is that of the ranks it ended, which is larger.
        assert launch.process.wait(20) != 0, launch.told()
        assert "task 6: Exited with exit code 7" in launch.process.complains()

    def test_an_elastic_job_goes_on(self, ring, start):
        words = trainer(ring, "--ops", "60", "--delay-ms", "20", "--join-every", "1")
        launch = start("elastic", "salloc", f"-N{NODES}", "--exclusive", ring.program("gradring-run"),
                       "-np", str(RANKS), "--policy", "elastic min=2", *words)
        launch.wait_for("done", RANKS)
        os.kill(launch.wait_for("joined", RANKS)[3]["pid"], signal.SIGKILL)
        assert launch.process.wait(40) != 0
        assert {one["verdict"] for one in launch.events("done")} <= {OK, OK_SHRUNK}
        assert len(launch.events("left")) == RANKS - 1, launch.told()


@pytest.mark.skipif(shutil.which("mpiexec.hydra") is None, reason="there is no mpiexec.hydra (Debian's mpich)")
def test_hydra_tells_each_rank_its_place(ring, remote):
    """All but the name of its run."""
    node = ring.nodes[0]
    process = testbed.Process("hydra", [
        *node.as_host(), "mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", remote, "-hosts", HOSTS,
        "-genv", "GRADRING_JOB", "by-hydra", "-n", RANKS, *trainer(ring, "--ops", "3")],
        ring.folder, ring.mark, {"FOLDERS": str(ring.folder)}, node.prefix)
    ring.processes.append(process)
    assert_all_right(Launch(process), 3)


@needs_mpirun
class TestMpirun:
    @pytest.fixture
    def start(self, ring):
        def start(name, *command):
            node = ring.nodes[0]
            process = testbed.Process(name, [*node.as_host(), *command], ring.folder, ring.mark,
                                      {"FOLDERS": str(ring.folder), **ROOT_MAY}, node.prefix)
            ring.processes.append(process)
            return Launch(process)
        return start

    def test_each_rank_has_its_place(self, ring, start, remote):
        before = names_of_jobs(ring)
        launch = start("mpirun", "mpirun", "-np", str(RANKS), "--host", HOSTS, "--mca", "plm_rsh_agent", remote,
                       *trainer(ring, "--ops", "3"))
        assert_all_right(launch, 3)
        (name,) = names_of_jobs(ring) - before
        assert name.isdigit(), name

    def test_a_killed_rank_is_told_to_all(self, ring, start, remote):
        launch = start("mpirun-killed", "mpirun", "-np", str(RANKS), "--host", HOSTS, "--mca", "plm_rsh_agent",
                       remote, *trainer(ring, "--ops", "100000", "--delay-ms", "5"))
        launch.wait_for("done", RANKS)
        culprit = next(one for one in launch.wait_for("joined", RANKS) if one["rank"] == 5)
        os.kill(culprit["pid"], signal.SIGKILL)
        assert launch.process.wait(20) != 0
        told_of(launch, culprit)
        # mpirun ends the others, some of them perhaps before they could say what they were told, or before their
        # daemons were; each daemon says how its own ended.
        why = [job["explanation"] for job in ring.nodes[0].ask("jobs")["jobs"]]
        if not any("rank 5" in one and f"pid {culprit['pid']}" in one for one in why):
            assert any("killed by signal 15 (SIGTERM); and" in one for one in why), why
        died = [one["text"] for node in ring.nodes for one in node.ask("events")["events"] if one["event"] == "trainer died"]
        assert any(f"rank 5 (pid {culprit['pid']}" in one and "killed by signal 9" in one for one in died), died

    def test_gradring_run_becomes_mpirun(self, ring, start, remote):
        launch = start("becomes-mpirun", ring.program("gradring-run"), "--launcher", "mpirun", "-np", str(RANKS), "-H",
                       HOSTS, "--rsh", remote, "--job", "by-mpirun", "--launcher-args", "--mca oob_tcp_if_include eth0",
                       *trainer(ring, "--ops", "3"))
        assert_all_right(launch, 3)
        assert "by-mpirun" in names_of_jobs(ring)

    @needs_slurm
    def test_inside_an_allocation_it_is_one_job(self, ring, slurm):
        """Only those of its ranks that are on other nodes are in a step of srun."""
        process = slurm.process("mpirun-slurm", ["salloc", f"-N{NODES}", f"--ntasks-per-node={PER_NODE}", "mpirun",
                                                 *trainer(ring, "--ops", "3")],
                                FOLDERS=str(ring.folder), **ROOT_MAY)
        assert_all_right(Launch(process), 3)
