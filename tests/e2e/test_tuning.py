"""By which table the sums of a job go: as it comes, written out by the operator, or found while the job runs."""

import re
import signal

import pytest
from checks import OK, TRAINER, assert_agreed, events, run_job, wait_for_all
from cluster import wait_until

LONG = ["--ops", "1000000", "--count", "65536"]  # 256 KiB, until told to end
SECONDS = 90  # for a search: some nine candidates, each for a pulse or two of the daemon


def tuning_of(node, job):
    report = node.ask("job", job, missing_ok=True)
    return (report or {}).get("tuning")


def end(job):
    """All was well until now."""
    for trainer in job:
        assert all(one["verdict"] == OK and one["right"] for one in events(trainer, "done")), trainer.says()[-500:]
    job.kill()


@pytest.fixture
def searching(make_cluster, tmp_path):
    """Two nodes that look for better tables, and the file in which the first of them keeps what it found."""
    cluster = make_cluster(2, settings={"tuning": "auto", "tuning-file": tmp_path / "unused"})
    cluster.configure(cluster.nodes[0], tuning_file=tmp_path / "tuning")
    return cluster.start(), tmp_path / "tuning"


def test_a_job_finds_its_table_and_the_next_one_begins_with_it(searching, figure):
    cluster, file = searching
    job = cluster.launch("first", [TRAINER, *LONG])
    wait_for_all(job, "done", 10)
    found = wait_until(lambda: (tuning := tuning_of(cluster.nodes[1], "first")) and tuning["state"] == "searched" and tuning,
                       SECONDS, "everything is tried")
    size = next(one for one in found["sizes"] if one["up_to_bytes"] == 256 << 10)
    assert size["left"] == 0 and "tried" not in size
    text = cluster.nodes[0].ctl("job", "first")[1]
    assert f"sums go by {found['table']} (searched)" in text and "up to 256.0 KiB" in text
    epochs = cluster.nodes[0].ask("job", "first")["epoch"]
    assert 3 <= epochs <= 13, "each candidate was an epoch, and at most twelve are tried"
    figure(f"tuning: 256 KiB on two nodes of this machine go by {size['way']}, after {epochs - 1} changes of the table")
    end(job)
    assert re.search(r'table: "(.*)"', file.read_text()).group(1) == found["table"]
    assert 'searched: "256K"' in file.read_text()

    again = cluster.launch("second", [TRAINER, *LONG])
    wait_for_all(again, "done", 500)
    tuning = tuning_of(cluster.nodes[1], "second")
    assert (tuning["state"], tuning["table"]) == ("found before", found["table"])
    assert cluster.nodes[0].ask("job", "second")["epoch"] == 1
    end(again)


def test_a_job_that_wants_the_same_bits_each_time_is_left_alone(searching):
    cluster, file = searching
    job = cluster.launch("same", ["env", "GRADRING_DETERMINISTIC=on", cluster.program(TRAINER), *LONG])
    wait_for_all(job, "done", 2000)
    report = cluster.nodes[1].ask("job", "same")
    assert (report["tuning"]["state"], report["tuning"]["table"], report["epoch"]) == ("fixed", "default", 1)
    end(job)
    assert not file.exists()


def test_a_table_that_is_written_out_holds_also_after_nodes_were_lost(make_cluster):
    cluster = make_cluster(3, settings={"tuning": "64K:parts,rest:16K"}).start()
    run_job(cluster, "small", "--ops", "20", "--count", "1000")
    words = [TRAINER, "--policy", "elastic", "--ops", "300", "--join-every", "5", "--delay-ms", "5", "--count", "100000"]
    job = cluster.launch("pinned", words)
    wait_for_all(job, "done", 20)
    tuning = tuning_of(cluster.nodes[1], "pinned")
    assert tuning == {"state": "fixed", "table": "64K:parts,rest:16K", "sizes": []}
    job[0].kill()  # the node that looks after the table
    cluster.nodes[0].daemon.signal(signal.SIGKILL)

    def pinned_again():
        report = cluster.nodes[2].ask("job", "pinned")
        return report["size"] == 2 and report.get("tuning") == tuning
    wait_until(pinned_again, 10, "the two that are left have the table again")
    assert [one.wait(60) for one in (job[1], job[2])] == [0, 0]
    assert_agreed([job[1], job[2]])
    cluster.processes.append(cluster.nodes[0].run_daemon())
    cluster.nodes[0].wait_ready(len(cluster.nodes) - 1)
