"""gradringd --check-config by root answers for the daemon's user, who may not read or write what root may."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

USER = "nobody"


@pytest.fixture
def service(programs):
    """A node with a key whose service runs as USER, as its runtime directory says."""
    if os.geteuid() != 0:
        pytest.skip("needs root: files are given to others")
    folder = Path(tempfile.mkdtemp(prefix="gradring-check-"))  # pytest's own are closed to USER
    folder.chmod(0o755)
    subprocess.run([programs / "gradringctl", "keygen", "--name", "a", "--address", "127.0.0.1:7300", "--out", folder],
                   check=True, capture_output=True, timeout=20)
    (folder / "a.pub").rename(folder / "allowed-keys")
    os.chown(folder / "a.key", pwd.getpwnam(USER).pw_uid, -1)
    (folder / "run").mkdir()
    os.chown(folder / "run", pwd.getpwnam(USER).pw_uid, -1)
    (folder / "conf").write_text(f"node = a\nruntime-dir = {folder}/run\nkey = {folder}/a.key\nallowed-keys = {folder}/allowed-keys\n")
    yield folder
    shutil.rmtree(folder)


def check(programs, service, *words):
    done = subprocess.run([programs / "gradringd", "--config", service / "conf", "--check-config", *words], capture_output=True,
                          text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_what_the_service_can_read_is_good(programs, service):
    status, said = check(programs, service)
    assert status == 0 and said.startswith("OK: node a, "), said


@pytest.mark.parametrize("name", ["a.key", "allowed-keys", "conf"])
def test_what_root_alone_can_read_is_not(programs, service, name):
    os.chown(service / name, 0, 0)
    (service / name).chmod(0o600)
    status, said = check(programs, service)
    assert status == 2 and f"{service}/{name}" in said, said
    assert said.startswith(f"gradringd: for {USER}, whose {service}/run is: ") and said.count("\n") == 1, said


def test_a_group_that_the_service_is_not_in_is_told(programs, service):
    status, said = check(programs, service, "--socket-group=daemon")
    assert status == 2 and f"usermod -aG daemon {USER}" in said, said


def test_a_credential_of_the_service_is_good(programs, service):
    """By an ACL of systemd's, as from 254 on, whose mask stands where the mode has the group's bits; in a /run of its own."""
    made = "mount -t tmpfs tmpfs /run; mkdir -p $1; cp -p $2 $1/gradring.key; chmod 0440 $1/gradring.key; shift 2; exec \"$@\""
    there = "/run/credentials/gradringd.service"
    done = subprocess.run(["unshare", "-m", "sh", "-ec", made, "-", there, service / "a.key", programs / "gradringd", "--config",
                           service / "conf", "--key", f"{there}/gradring.key", "--check-config"], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 0 and done.stdout.startswith("OK: "), done


def test_where_root_serves_it_looks_as_root(programs, service):
    """In a container, in a folder of the node's that is its gradring's."""
    os.chown(service / "a.key", 0, 0)
    with subprocess.Popen([programs / "gradringd", "--config", service / "conf", "--listen", "127.0.0.1:7301"],
                          stderr=subprocess.PIPE, text=True) as daemon:
        try:
            assert any(" is ready" in line for line in daemon.stderr)
            status, said = check(programs, service)
            assert status == 0, said
        finally:
            daemon.terminate()
            daemon.communicate(timeout=20)
