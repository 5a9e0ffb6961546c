"""Sums that travel in 16 or 8 bits: fewer bytes, the same bits on all ranks, and models that learn as well."""

import re
import signal
import subprocess
import time

import pytest
from checks import OK, TRAINER, assert_agreed, events, wait_for_all
from cluster import wait_until

WIRES = ["fp16", "bf16", "int8"]
LARGE = 300_000  # elements: 1.2 MB, in several slices


def check(cluster, per_node, *words):
    job = cluster.launch("perf", ["gradring-perf", *words, "--check", "--iters", "1", "--warmup", "0"],
                         per_node=per_node)
    assert job.wait(90) == [0] * len(job), job[0].says() + "".join(one.complains() for one in job)
    assert "# Wrong values: 0 OK" in job[0].says()


# Small whole numbers are exact in 16 bits: every element is compared.
@pytest.mark.parametrize("wire", ["fp16", "bf16"])
@pytest.mark.parametrize("collective", ["allreduce", "reduce-scatter", "reduce"])
def test_sums_of_whole_numbers_are_exact(quad, wire, collective):
    for op in ("sum", "average", "max"):
        check(quad, 2, collective, "--wire", wire, "--op", op, "--min", "266668", "--max", "4M", "--factor", "4")


def test_with_checksums_and_the_comparison_of_results(make_cluster):
    ring = make_cluster(3, settings={"checksum": "on", "verify": "on"}).start()
    check(ring, 2, "allreduce", "--wire", "bf16", "--min", "266668", "--max", "4M")
    job = ring.launch("int8", ["gradring-perf", "allreduce", "--wire", "int8", "--min", "1M", "--max", "4M"], per_node=2)
    assert job.wait(60) == [0] * 6, "".join(one.complains() for one in job)


def test_fewer_bytes_travel(make_cluster, figure):
    sent = {}
    for wire in ["native", *WIRES]:
        ring = make_cluster(2).start()
        ops = ["gradring-perf", "allreduce", "--wire", wire, "--min", "4M", "--max", "4M", "--iters", "5"]
        assert ring.launch("bytes", ops).wait(60) == [0] * 2
        time.sleep(1)  # the daemons renew their counters some times a second
        sent[wire] = ring.nodes[0].peers()[0]["sent_bytes"]
    shares = {wire: sent[wire] / sent["native"] for wire in WIRES}
    figure("wire: bytes sent, of those of float32: " + ", ".join(f"{wire} {share:.3f}" for wire, share in shares.items()))
    assert 0.49 < shares["fp16"] < 0.51 and 0.49 < shares["bf16"] < 0.51 and 0.25 < shares["int8"] < 0.27, shares


def test_a_node_dies_and_the_others_agree_on_every_bit(make_cluster):
    ring = make_cluster(4).start()
    job = ring.launch("shrinks", [TRAINER, "--policy", "elastic", "--ops", "150", "--join-every", "5", "--delay-ms", "4",
                                  "--count", str(LARGE), "--wire", "bf16"])
    wait_for_all(job, "done", 30)
    ring.nodes[3].daemon.signal(signal.SIGKILL)
    job[3].kill()
    survivors = list(job)[:3]
    assert [one.wait(60) for one in survivors] == [0] * 3, [one.says()[-600:] for one in survivors]
    assert_agreed(survivors)


def test_daemons_that_restart_lose_nothing(make_cluster):
    ring = make_cluster(3, settings={"restart-grace": "10s"})
    for node in ring.nodes:
        ring.processes.append(node.run_daemon("--keep"))
    for node in ring.nodes:
        node.wait_ready(2)
    job = ring.launch("goes-on", [TRAINER, "--ops", "80", "--count", str(LARGE), "--delay-ms", "10", "--wire", "bf16"])
    for index, node in enumerate(ring.nodes):
        wait_for_all(job, "done", 15 * (index + 1))
        pid = node.daemon_pid()
        subprocess.run(["kill", "-9", str(pid)], check=True)
        wait_until(lambda node=node, pid=pid: node.daemon_pid() not in (None, pid), 5.0, "it is back")
    assert job.wait(60) == [0] * 3, [one.says()[-600:] for one in job]
    for trainer in job:
        assert all(one["verdict"] == OK and one["right"] for one in events(trainer, "done"))


# Two of its three layers are large enough to travel so.
def test_a_model_learns_as_well(make_cluster, programs, tmp_path, figure):
    accuracy, weights = {}, set()
    for wire in ["native", *WIRES]:
        ring = make_cluster(2).start()
        job = ring.launch(f"digits-{wire}", ["env", f"GRADRING_WIRE={wire}", str(programs / "gradring-digits"), "--width",
                                             "8", "--epochs", "5", "--weights-out",
                                             str(tmp_path / f"{wire}-%r.bin")], per_node=2)
        assert job.wait(200) == [0] * 4, [one.complains() for one in job]
        accuracy[wire] = float(re.search(r"test accuracy ([\d.]+) %", job[0].says())[1])
        done = subprocess.run([programs / "gradring-digits-check", "same",
                               *(tmp_path / f"{wire}-{rank}.bin" for rank in range(4))], capture_output=True, text=True,
                              timeout=30, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        weights.add((tmp_path / f"{wire}-0.bin").read_bytes())
    assert len(weights) == 4, "they travelled alike"
    figure("wire: accuracy of the digits: " + ", ".join(f"{wire} {value:.2f} %" for wire, value in accuracy.items()))
    assert all(value >= accuracy["native"] - 1 for value in accuracy.values()), accuracy
