"""What cannot work is refused in one line that says what to do, by the daemon and by the library."""

import os
import re
import subprocess

import pytest
from checks import TRAINER, run_job, wait_for
from cluster import Process, wait_until


def refusal(cluster, *words, network_of=None):
    """Runs gradringd until it ends: (exit status, its last line). It must not start."""
    prefix = network_of.prefix if network_of else []
    daemon = Process("refused", [cluster.program("gradringd"), *words], cluster.folder, cluster.mark, prefix=prefix)
    try:
        status = daemon.wait(20)
    finally:
        daemon.kill()
    lines = (daemon.complains() + daemon.says()).strip().splitlines()
    assert len(lines) == 1, lines
    return status, lines[0]


def test_no_daemon_there(pair, tmp_path):
    trainer = pair.start_trainer("nowhere", ["env", f"GRADRING_RUNTIME_DIR={tmp_path}", pair.program(TRAINER)],
                                 pair.nodes[0], 0, 1)
    assert trainer.wait(20) == 1
    begun, refused = wait_for(trainer, "started"), wait_for(trainer, "refused")
    assert str(tmp_path) in refused["message"] and f"gradringd --runtime-dir {tmp_path}" in refused["message"]
    assert refused["time"] - begun["time"] < 2


def test_second_daemon_in_the_same_folder(pair):
    node = pair.nodes[0]
    elsewhere = re.sub(r":\d+$", ":7398", node.address)
    status, line = refusal(pair, "--config", node.config, "--listen", elsewhere, network_of=node)
    assert status == 2 and str(node.runtime_dir) in line and str(node.daemon.pid) in line, line
    run_job(pair, "still-there", "--ops", "2")


def test_port_in_use(pair, tmp_path):
    node = pair.nodes[0]
    status, line = refusal(pair, "--config", node.config, "--runtime-dir", tmp_path, network_of=node)
    assert status == 2 and node.address in line, line


def test_listening_to_the_network_without_a_key(pair, tmp_path):
    words = ["--runtime-dir", tmp_path, "--listen", "0.0.0.0:7399"]
    (tmp_path / "empty.conf").write_text("")
    status, line = refusal(pair, "--config", tmp_path / "empty.conf", *words)
    assert status == 2 and "insecure" in line and "key" in line, line


@pytest.mark.parametrize("text, words", [
    ("colour = blue\n", "colour"),
    ("decide = soon\n", "decide"),
    ("peer = 127.0.0.1:7391\npeer = 127.0.0.1:7391\n", "127.0.0.1:7391"),
    ("runtime-dir = /proc/nothing\n", "/proc/nothing"),
])
def test_configuration_that_makes_no_sense(pair, tmp_path, text, words):
    config = tmp_path / "gradringd.conf"
    config.write_text("listen = 127.0.0.1:7390\n" + ("" if "runtime-dir" in text else f"runtime-dir = {tmp_path}\n")
                      + text)
    status, line = refusal(pair, "--config", config)
    assert status == 2 and words in line, line


def test_started_with_its_outputs_closed(make_cluster):
    cluster = make_cluster(1)
    node = cluster.nodes[0]
    node.daemon = Process("closed", ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', node.program("gradringd"), "--config", node.config],
                          cluster.folder, cluster.mark, prefix=node.prefix)
    node.wait_ready(0)
    assert [os.readlink(f"/proc/{node.daemon.pid}/fd/{fd}") for fd in range(3)] == ["/dev/null"] * 3


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system, which only root may")
def test_a_folder_that_cannot_be_written(programs, tmp_path):
    done = subprocess.run(["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro none "$1" && exec "$0" --runtime-dir "$1"',
                           programs / "gradringd", tmp_path], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2 and f"{tmp_path} cannot be written by uid 0: Read-only file system" in done.stderr, done


def test_two_nodes_of_one_name(make_cluster):
    cluster = make_cluster(2, secure=False)  # with keys, the second is not believed in the first place
    first, second = cluster.nodes
    for node, flags in ((first, []), (second, ["--node", first.name])):
        cluster.processes.append(node.run_daemon(*flags))

    def shown():
        return [peer for peer in second.peers("refused") or [] if first.name in peer["reason"]]
    assert wait_until(shown, 15, f"the second {first.name} is turned away in words: {second.peers()}")
    assert first.daemon.running() and second.daemon.running()


def test_ctl_without_a_daemon(programs, tmp_path):
    done = subprocess.run([programs / "gradringctl", "--runtime-dir", tmp_path, "status"], capture_output=True,
                          text=True, timeout=20, check=False)
    assert done.returncode == 3 and f"gradringd --runtime-dir {tmp_path}" in done.stderr, done
