"""One file with all that somebody needs who is to help, and no key in it."""

import json
import os
import signal
import subprocess
import tarfile

from checks import TRAINER, wait_for_all
from cluster import Process, wait_until


def parts_of(path):
    with tarfile.open(path) as archive:
        return {member.name.removeprefix("gradring-support/"): archive.extractfile(member).read()
                for member in archive.getmembers() if member.isfile()}


def test_a_bundle_has_all_nodes_and_says_what_it_lacks(pair, tmp_path):
    for _ in range(2):
        pair.launch("long\x1b[31m" + "x" * 99, [TRAINER, "--ops", "1"], nodes=pair.nodes[:1]).wait(20)
    job = pair.launch("bundled", [TRAINER, "--ops", "100000", "--delay-ms", "5"])
    wait_for_all(job, "done", 2)
    path = tmp_path / "all.tar.gz"
    status, out, said = pair.nodes[0].ctl("--json", "support-bundle", "-o", path, seconds=90)
    told = json.loads(out)
    assert status == 0 and told["healthy"], (told, said)
    job.kill()
    parts = parts_of(path)
    for node in ("n0", "n1"):
        for name in ("status", "peers", "jobs", "events"):
            document = json.loads(parts[f"nodes/{node}/{name}.json"])
            assert document["schema_version"] == 1
        running = [name for name in parts if name.startswith(f"nodes/{node}/job-bundled-")]
        assert len(running) == 1 and json.loads(parts[running[0]])["name"] == "bundled"
    assert len([name for name in parts if name.startswith("nodes/n0/job-long__31mxxx")]) == 2
    assert "\x1b" not in said and "\x1b" not in parts["MANIFEST.txt"].decode()
    assert json.loads(parts["topology.json"])["schema_version"] == 1
    assert b"node = n0" in parts["here/gradringd.conf"]
    assert b"Max open files" in parts["here/limits.txt"]
    assert parts["here/flight-recorder"] and b"Linux" in parts["here/kernel.txt"]
    assert any(name.startswith("here/machine/") for name in parts)
    manifest = parts["MANIFEST.txt"].decode()
    for one in told["parts"]:
        assert one["file"] in manifest
        assert one["missing_because"] == "" or one["missing_because"] in manifest
        assert one["missing_because"] or one["file"] in parts or one["file"] == "here/machine"
    assert "status of node n1: " in said  # progress, part by part
    assert path.stat().st_mode & 0o777 == 0o600

    before = path.read_bytes()
    status, _, said = pair.nodes[0].ctl("support-bundle", "-o", path, seconds=90)
    assert status == 1 and "exists already" in said and path.read_bytes() == before


def test_no_key_gets_into_a_bundle(make_cluster, tmp_path):
    secured = make_cluster(2, secure=True).start()
    node = secured.nodes[0]
    path = tmp_path / "secret.tar.gz"
    assert node.ctl("support-bundle", "-o", path, seconds=90)[0] == 0
    words = {word.strip('"').encode() for file in secured.folder.rglob("*") if file.is_file() and "key" in file.name
             for word in file.read_text(errors="replace").split()}
    keys = {word for word in words if len(word) == 40}
    assert keys, "this test knows no key"
    for name, content in parts_of(path).items():
        for key in keys:
            assert key not in content, name


def test_without_a_daemon_the_rest_is_taken(make_cluster, tmp_path):
    single = make_cluster(1).start()
    node = single.nodes[0]
    node.stop()
    path = tmp_path / "dead.tar.gz"
    status, out, _ = node.ctl("support-bundle", "-o", path, seconds=90)
    assert status == 1 and "no daemon could be asked" in out
    parts = parts_of(path)
    assert "here/flight-recorder" in parts and "here/kernel.txt" in parts


def test_a_node_that_is_lost_is_among_what_it_lacks(make_cluster, tmp_path):
    pair = make_cluster(2).start()
    node = pair.nodes[0]
    pair.nodes[1].daemon.kill()
    wait_until(lambda: node.peers("lost"), 20, "n1 is lost")
    path = tmp_path / "part.tar.gz"
    told = node.ask("support-bundle", "-o", path)
    lacks = [one["missing_because"] for one in told["parts"] if one["file"] == "nodes"]
    assert len(lacks) == 1 and "node n1 is lost and was not asked" in lacks[0], told
    assert lacks[0] in parts_of(path)["MANIFEST.txt"].decode()


def test_who_interrupts_it_finds_nothing_left_behind(make_cluster, tmp_path):
    single = make_cluster(1).start()
    node = single.nodes[0]
    node.daemon.signal(signal.SIGSTOP)
    bundle = Process("bundle", [node.program("gradringctl"), "--runtime-dir", node.runtime_dir, "support-bundle", "-o",
                                tmp_path / "all.tar.gz"], single.folder, single.mark, environment={"TMPDIR": str(tmp_path)})
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2, 20, "it waits for the daemon")
    bundle.signal(signal.SIGINT)
    assert bundle.wait(20) == 1 and "interrupted" in bundle.complains(), bundle.complains()
    assert not list(tmp_path.iterdir())
    node.daemon.signal(signal.SIGCONT)


def test_it_is_written_for_whoever_reads_only_a_line_of_its_progress(pair, tmp_path):
    path, scratch = tmp_path / "bundle.tar.gz", tmp_path / "scratch"
    scratch.mkdir()
    node = pair.nodes[0]
    words = [node.program("gradringctl"), "--runtime-dir", node.runtime_dir, "support-bundle", "-o", path]
    subprocess.run(["sh", "-c", '"$@" 2>&1 | head -n 1', "sh", *map(str, words)], check=True, capture_output=True, timeout=90,
                   env={**os.environ, "TMPDIR": str(scratch)})
    assert "MANIFEST.txt" in parts_of(path)
    assert list(scratch.iterdir()) == []


def test_nonsense_is_refused(pair, tmp_path):
    for words, complaint in ((["-o"], "output"), (["-o", "x.zip"], "ends in .tar.gz"), (["here"], "a word too many")):
        status, _, said = pair.nodes[0].ctl("support-bundle", *words)
        assert status == 2 and complaint in said, (words, said)
    status, _, said = pair.nodes[0].ctl("support-bundle", "-o", tmp_path / "nowhere/x.tar.gz")
    assert status == 1 and "cannot make" in said
