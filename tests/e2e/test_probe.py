"""The active measurement between daemons, beside iperf3 on the same links."""

import json
import shutil
import time

import pytest
from checks import TRAINER, wait_for_all
from cluster import Process, wait_until

SECONDS = "2"
ODD_PORT = "5209"


@pytest.fixture
def shaped(namespaces, make_cluster):
    """Three nodes at 1 Gbit/s, of which n2 sends at 200 Mbit/s."""
    ring = make_cluster(3, network=namespaces)
    ring.network.slow_down(2, "200mbit")
    for node in (0, 1):
        ring.network.slow_down(node, "1gbit")
    return ring.start()


def iperf3(ring, sender, receiver):
    """Payload in bytes a second, as iperf3's receiver counts it."""
    network = ring.network
    address = network.address(receiver).split(":")[0]
    server = Process("iperf3", ["iperf3", "-s", "-1", "-p", ODD_PORT], ring.folder, ring.mark,
                     prefix=network.prefix(receiver))
    try:
        wait_until(lambda: ODD_PORT in network.inside(receiver, "ss", "-ltn"), 10, "iperf3 listens")
        told = json.loads(network.inside(sender, "iperf3", "-c", address, "-p", ODD_PORT, "-t", SECONDS, "-O", "1", "-J"))
    finally:
        server.kill()
    return told["end"]["sum_received"]["bits_per_second"] / 8


def cells_of(told):
    return {(cell["from"], cell["to"]): cell for cell in told["cells"]}


def test_the_matrix_names_the_slow_node(shaped, tmp_path, figure):
    node = shaped.nodes[0]
    status, out, err = node.ctl("--json", "bandwidth", "--matrix", "--seconds", SECONDS, "--svg", tmp_path / "m.svg", seconds=90)
    assert status == 1, (out, err)
    told = json.loads(out)
    cells = cells_of(told)
    assert len(cells) == 6 and not [cell for cell in cells.values() if "fault" in cell], told
    assert told["worst"]["from"] == "n2"
    assert sorted(one.split(" gets ")[0] for one in told["problems"]) == ["n2 to n0", "n2 to n1"], told
    assert "class=\"worst\"" in (tmp_path / "m.svg").read_text()
    assert all(cell["jobs_bytes_per_second"] == 0 for cell in cells.values())
    if shutil.which("iperf3") is None:
        pytest.skip("needs iperf3 to compare with")
    for sender, receiver in ((0, 1), (1, 0), (2, 0)):
        ours, theirs = cells[f"n{sender}", f"n{receiver}"]["bytes_per_second"], iperf3(shaped, sender, receiver)
        figure(f"n{sender} to n{receiver}: {ours * 8e-6:.1f} Mbit/s, iperf3 {theirs * 8e-6:.1f}, {ours / theirs - 1:+.1%}")
        assert 0.9 < ours / theirs < 1.1, (sender, receiver, ours, theirs)


def test_beside_a_job_it_is_refused_or_takes_little(shaped, figure):
    node = shaped.nodes[0]
    job = shaped.launch("busy", [TRAINER, "--ops", "100000", "--count", "2000000"], nodes=shaped.nodes[:2])
    wait_for_all(job, "done", 3)
    status, _, err = node.ctl("bandwidth", "--matrix")
    assert status == 1 and "job busy has trainers on node n0" in err and "--force" in err
    # A job on others' nodes is one all the same.
    assert "job busy" in shaped.nodes[2].ctl("bandwidth", "--matrix")[2]
    before = node.ask("job", "busy")["ops_completed"]
    status, out, err = node.ctl("--json", "bandwidth", "--matrix", "--force", "--seconds", "3", seconds=120)
    cells = cells_of(json.loads(out))
    assert not [cell for cell in cells.values() if "fault" in cell], out
    busy = cells["n0", "n1"]
    figure(f"n0 to n1 beside a job: {busy['bytes_per_second'] * 8e-6:.1f} Mbit/s, "
           f"of which the job {busy['jobs_bytes_per_second'] * 8e-6:.1f}")
    assert busy["jobs_bytes_per_second"] > 0
    assert 0.85 < busy["bytes_per_second"] / 125e6 < 1.05, busy
    assert node.ask("job", "busy")["ops_completed"] > before
    assert all(trainer.running() for trainer in job)
    job.kill()


def test_latency(pair):
    # On a busy machine one way may be slower than the other, which is a problem and no fault.
    _, out, err = pair.nodes[0].ctl("--json", "bandwidth", "--latency", "--seconds", "0.5", seconds=60)
    for cell in json.loads(out)["cells"]:
        assert "fault" not in cell, err
        assert 0 < cell["min_us"] <= cell["median_us"] <= cell["p99_us"] and cell["round_trips"] > 10, cell
    _, out, _ = pair.nodes[0].ctl("bandwidth", "--latency", "--seconds", "0.2", seconds=60)
    assert "worst" in out


def test_one_at_a_time(pair):
    """Of two that ask at once one is told so, for each way anew."""
    first = Process("first", [pair.program("gradringctl"), "--json", "--runtime-dir", pair.nodes[0].runtime_dir,
                              "bandwidth", "--matrix", "--seconds", "3"], pair.folder, pair.mark)
    time.sleep(1)
    told = cells_of(pair.nodes[0].ask("bandwidth", "--matrix", "--seconds", "0.5"))
    status = first.wait(60)
    answer = json.loads(first.out.read_text())
    faults = [[cell["fault"] for cell in cells.values() if "fault" in cell] for cells in (cells_of(answer), told)]
    assert faults[1], told
    # A way that a busy machine made slow is a problem without a fault.
    assert (status == 0) == (not answer["problems"]) and len(answer["problems"]) >= len(faults[0]), answer
    assert all("another probe" in fault for fault in faults[0] + faults[1]), faults


def test_who_comes_in_the_moment_of_anothers_end_waits_for_it(pair):
    node = pair.nodes[0]
    asked = [Process(name, [pair.program("gradringctl"), "--json", "--runtime-dir", node.runtime_dir, "bandwidth", "--matrix",
                            "--seconds", "0.1"], pair.folder, pair.mark) for name in ("one", "other")]
    for one in asked:
        one.wait(60)
        # On a busy machine too little may come through in that time, which is a fault of its own.
        faults = [cell.get("fault", "") for cell in json.loads(one.out.read_text())["cells"]]
        assert len(faults) == 2 and not [fault for fault in faults if "another probe" in fault], faults
    # A limit is what people can raise.
    assert "limit hit" not in {event["event"] for event in node.ask("events", "--all")["events"]}


def test_who_asks_for_nonsense_is_told_so(single):
    for words in (["--matrix", "--seconds", "0"], ["--matrix", "--seconds", "61"], ["--matrix", "--size", "5M"],
                  ["--matrix", "--size", "0"], ["--force"], ["--matrix", "--latency"], ["--svg", "x.svg"], ["--size", "1K"]):
        assert single.nodes[0].ctl("bandwidth", *words)[0] == 2, words
    status, text, _ = single.nodes[0].ctl("bandwidth", "--matrix")
    assert status == 0 and "no peers" in text


def test_a_receiver_that_dies_ends_it(namespaces, make_cluster):
    ring = make_cluster(2, network=namespaces).start()
    probe = Process("probe", [ring.program("gradringctl"), "--json", "--runtime-dir", ring.nodes[0].runtime_dir,
                              "bandwidth", "--matrix", "--seconds", "20"], ring.folder, ring.mark)
    time.sleep(2)
    ring.nodes[1].daemon.kill()
    assert probe.wait(20) == 1, probe.says()
    assert all(cell["fault"] for cell in json.loads(probe.out.read_text())["cells"])
    node = ring.nodes[0]
    assert node.ask("status")["node"] == "n0"
    wait_until(lambda: node.peers("lost"), 20, "n1 is lost")
    # Nothing is measured, and nobody takes that for all there is.
    for what in ("--matrix", "--latency"):
        status, out, _ = node.ctl("bandwidth", what)
        assert status == 1 and "no other node could be asked" in out and "! node n1 is lost and was not asked: " in out, out


def test_a_picture_that_cannot_be_written_costs_no_measurement(pair, tmp_path):
    node = pair.nodes[0]
    status, out, err = node.ctl("bandwidth", "--latency", "--svg", tmp_path / "no" / "a.svg")
    assert (status, out) == (1, "") and "cannot write" in err, (out, err)
    status, out, err = node.ctl("bandwidth", "--latency", "--seconds", "0.1", "--svg", "/dev/full")
    assert status == 1 and "worst" in out and "! cannot write /dev/full: No space left on device" in out, (out, err)


def test_the_end_of_the_daemon_that_was_asked_ends_it(make_cluster):
    ring = make_cluster(3).start()
    node = ring.nodes[0]
    probe = Process("probe", [ring.program("gradringctl"), "--runtime-dir", node.runtime_dir, "bandwidth", "--matrix",
                              "--seconds", "20"], ring.folder, ring.mark)
    time.sleep(2)
    node.daemon.kill()
    assert probe.wait(10) == 3, probe.complains()
    assert "nobody listens" in probe.complains()
