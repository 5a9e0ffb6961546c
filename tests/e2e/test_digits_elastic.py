"""A model is trained on four nodes; one of them dies in the middle of an epoch and comes back. Training goes on."""

import re
import signal

from cluster import wait_until
from test_digits import check

TRAIN = ["gradring-digits", "--policy", "elastic", "--epochs", "30", "--step-delay-ms", "5"]
ACCURACY_LEAST = 95.0  # percent; test_digits.py asks the same of a run without faults


SECONDS_MAX = 120  # for each part of the story, on a machine that is shared


def settle(condition, what):
    wait_until(condition, SECONDS_MAX, what)


def step_of(trainer):
    found = re.findall(r"step +(\d+)/", trainer.says())
    return int(found[-1]) if found else 0


def test_training_survives_the_death_of_a_node_and_takes_it_in_again(make_cluster, programs, tmp_path, figure):
    cluster = make_cluster(4).start()
    words = [*TRAIN, "--weights-out", str(tmp_path / "weights-%r.bin")]
    job = cluster.launch("digits", words)
    settle(lambda: step_of(job[0]) > 30, "training is under way")
    cluster.nodes[2].daemon.signal(signal.SIGKILL)
    job[2].kill()
    died_at = step_of(job[0])

    def ranks():
        (report,) = [one for one in cluster.nodes[0].ask("jobs")["jobs"] if one["state"] == "running"]
        return report["size"]
    settle(lambda: ranks() == 3, "three ranks go on")
    settle(lambda: step_of(job[0]) > died_at + 30, "training goes on at three ranks")
    cluster.processes.append(cluster.nodes[2].run_daemon())
    cluster.nodes[2].wait_ready(3)
    again = cluster.start_trainer("digits", words, cluster.nodes[2], 2, 4)
    settle(lambda: ranks() == 4, "the fourth has come in")
    back_at = step_of(job[0])
    trainers = [job[0], job[1], again, job[3]]
    assert [one.wait(2 * SECONDS_MAX) for one in trainers] == [0] * 4, [one.complains()[-600:] for one in trainers]
    accuracy = float(re.search(r"test accuracy ([\d.]+) %", job[0].says())[1])
    assert accuracy >= ACCURACY_LEAST
    check(programs, "same", *(tmp_path / f"weights-{rank}.bin" for rank in range(4)))
    figure(f"digits, 4 nodes: one died at step {died_at} and was back by step {back_at} of {step_of(job[0])}; "
           f"accuracy {accuracy:.1f} %, weights equal on all")
