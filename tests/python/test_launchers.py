"""The same script under each way that torch has to start two ranks on each of two nodes, and torchrun on four."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TRAINERS, Ring, reports

import cluster as testbed

SCRIPT = TRAINERS / "launched.py"


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def launch(ring, of_node):
    """Runs `of_node(host of the first, port, index, own host)` on each; how many ranks had the right sum."""
    ranks = 2 * len(ring.nodes)
    hosts = [node.address.rpartition(":")[0] for node in ring.nodes]
    port = str(free_port())
    agents = []
    for node in ring.nodes:
        command = [*ring.environment(), sys.executable, *of_node(hosts[0], port, node.index, hosts[node.index])]
        agents.append(testbed.Process(f"launch-{node.name}-{port}", command, ring.cluster.folder, ring.cluster.mark,
                                      {"GRADRING_RUNTIME_DIR": str(node.runtime_dir)}, node.prefix))
        ring.cluster.processes.append(agents[-1])
    for agent in agents:
        assert agent.wait(90) == 0, agent.says()[-500:] + agent.complains()[-2500:]
    # Ranks write to one file, and may do so within one another's lines.
    return sum(agent.says().count(f'{{"total": {ranks * (ranks + 1) / 2}}}') for agent in agents)


def torchrun(nodes):
    return lambda host, port, node, own: [
        "-m", "torch.distributed.run", "--nnodes", str(nodes), "--nproc-per-node", "2", "--rdzv-backend", "c10d",
        "--rdzv-id", "by-torchrun", "--rdzv-endpoint", f"{host}:{port}", "--rdzv-conf", f"is_host={int(node == 0)}",
        "--local-addr", own, SCRIPT]


WAYS = {
    "torchrun": torchrun(2),
    "torch.distributed.launch": lambda host, port, node, own: [
        "-m", "torch.distributed.launch", "--nnodes", "2", "--node_rank", str(node), "--nproc-per-node", "2",
        "--master_addr", host, "--master_port", port, SCRIPT],
    "mp.spawn": lambda host, port, node, own: [SCRIPT, "spawn", str(node), f"tcp://{host}:{port}"],
}


@pytest.mark.parametrize("way", WAYS)
def test_four_ranks_meet(ring, way):
    assert launch(ring, WAYS[way]) == 4


@pytest.mark.long
def test_eight_ranks_meet_on_four_nodes(request):
    programs = Path(request.config.getoption("--programs")).resolve()
    network, _ = testbed.best_network()
    with testbed.Cluster(programs, 4, network) as made:
        assert launch(Ring(made.start()), torchrun(4)) == 8
        assert "by-torchrun" in [job["name"] for job in made.nodes[3].ask("jobs")["jobs"]]


# ssh's part: a login on another node.
REMOTE = """#!/bin/sh
host=$1; shift
exec ip netns exec {space}-$host unshare --uts env -i CLUSTER_RUN="$CLUSTER_RUN" sh -c "hostname $host && $*"
"""


def test_gradring_run_tells_ranks_where_they_meet(ring):
    command = [ring.cluster.program("gradring-run"), "--np", "4", "--runtime-dir", f"{ring.cluster.folder}/%h"]
    if isinstance(ring.cluster.network, testbed.Namespaces):
        remote = ring.cluster.folder / "remote"
        remote.write_text(REMOTE.format(space=ring.cluster.network.name))
        remote.chmod(0o755)
        command += ["-H", "n0:2,n1:2", "--rsh", remote]
    node = ring.nodes[0]
    process = testbed.Process("by-run", [*node.as_host(), *command, *ring.environment(), sys.executable, SCRIPT],
                              ring.cluster.folder, ring.cluster.mark, prefix=node.prefix)
    ring.cluster.processes.append(process)
    assert process.wait(90) == 0, process.says()[-500:] + process.complains()[-2500:]
    assert process.says().count('{"total": 10.0}') == 4


@pytest.mark.skipif(testbed.why_no_slurm() is not None, reason=str(testbed.why_no_slurm()))
def test_gradring_run_becomes_srun_and_tells_ranks_what_torch_asks_for(ring, request):
    if not isinstance(ring.cluster.network, testbed.Namespaces):
        pytest.skip(f"needs network namespaces: {testbed.why_no_namespaces()}")
    slurm = testbed.Slurm(ring.cluster)
    request.addfinalizer(slurm.stop)
    process = slurm.process("by-srun", [
        "salloc", "--nodes=2", "--exclusive", ring.cluster.program("gradring-run"), "--np=4", "--runtime-dir",
        f"{ring.cluster.folder}/%h", *ring.environment(), sys.executable, SCRIPT])
    assert process.wait(90) == 0, process.says()[-500:] + process.complains()[-2500:]
    assert process.says().count('{"total": 10.0}') == 4
    assert any(re.fullmatch(r"\d+\.0", job["name"]) for job in ring.nodes[0].ask("jobs")["jobs"])


def test_a_job_is_shown_by_its_name(ring):
    job = ring.launch("waits", name="shown", fresh=True)
    testbed.wait_until(lambda: any("waiting" in one for one in reports(job[0])), 60, "rank 0 waits")
    shown = ring.nodes[0].ask("jobs")
    assert [one["name"] for one in shown["jobs"] if one["state"] != "ended"] == ["shown"], shown
    for trainer in job:
        trainer.kill()


def test_a_function_is_run_on_ranks_and_its_results_come_back(ring):
    path = f"{TRAINERS}:{os.environ.get('PYTHONPATH', '')}"
    unset = ["/usr/bin/env", "-u", "RANK", "-u", "WORLD_SIZE", "-u", "LOCAL_RANK", "-u", "LOCAL_WORLD_SIZE", "-u",
             "GRADRING_JOB", f"PATH={ring.cluster.programs}:/usr/bin:/bin", f"PYTHONPATH={path}"]
    job = ring.cluster.launch("functions", [*unset, sys.executable, TRAINERS / "functions.py", path],
                              nodes=ring.nodes[:1])
    assert job.wait(90) == [0], job[0].complains()[-2000:]
    told = {name: value for one in reports(job[0]) for name, value in one.items()}
    assert told["results"] == [[0, 60.0], [1, 60.0], [2, 60.0]]
    assert "rank 1" in told["raised"] and "LookupError: no such thing" in told["raised"]
    assert told["late"] == ["0", "1"]
    assert told["left"] == ["1", "2"]
    assert told["forked"] == [2.0, 2.0]
    assert told["told"] == [2, 2]
    assert told["found"] == [42]
    assert "returned on rank 0 cannot be unpickled: TypeError" in told["lame"]
    if "grouped" in told:  # where torch is
        raised, returned = told["grouped"]
        assert "raised on rank 1" in raised and "LookupError: no such batch" in raised
        assert "raised on rank 0" in returned and "left the job without submitting op 0" in returned
    assert "rank 1" in told["exited"] and "SystemExit" in told["exited"]
    assert "ended with 3" in told["ended"]
    assert "ended with 1" in told["silent"] and "ended with 1" in told["silent_elsewhere"]
    assert job[0].complains().count("before it had handed over what its function returns") == 2
    assert "KiB" in told["large"]
    assert told["as_horovods"] == [[0, 4.0], [1, 4.0]]
    assert told["variables"] == ["7", "7"]
    assert told.get("learned", 7) == 7  # where cloudpickle is
    assert "np is 0, and run() takes a whole number" in told["none"] and "hosts is '': give text" in told["nowhere"]
    assert "'use_glue'" in told["unknown"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_functions_ranks_end_with_their_caller(ring, tmp_path, number):
    """In peace, though the caller alone gets the signal, as a notebook does."""
    file = tmp_path / "rank"
    caller = subprocess.Popen([sys.executable, "-c", f"import functions, gradring; gradring.run(functions.stays, ({str(file)!r},))"],
                              env={**os.environ, "GRADRING_RUN": ring.cluster.program("gradring-run"),
                                   "PYTHONPATH": f"{TRAINERS}:{os.environ.get('PYTHONPATH', '')}"}, stderr=subprocess.DEVNULL)
    testbed.wait_until(file.exists, 60, "the rank runs")
    caller.send_signal(number)
    caller.wait(30)
    testbed.wait_until(Path(f"{file}.ended").exists, 10, "the rank was asked to end")
