"""A runtime directory that is one user's, in which another one's daemon ran before: root's, tried by hand."""

import contextlib
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

OWNER = pwd.getpwnam("nobody")


@pytest.fixture
def folder():
    if os.geteuid() != 0:
        pytest.skip("needs root: its daemon is the other one")
    made = Path(tempfile.mkdtemp(prefix="gradring-shared-"))
    made.chmod(0o755)
    os.chown(made, OWNER.pw_uid, OWNER.pw_gid)
    yield made
    shutil.rmtree(made)


@contextlib.contextmanager
def start(programs, folder, *before):
    with subprocess.Popen([*before, programs / "gradringd", "--config", "/dev/null", "--runtime-dir", folder, "--node", "a",
                           "--listen", "127.0.0.1:7302"], stderr=subprocess.PIPE, text=True) as daemon:
        try:
            yield daemon
        finally:
            daemon.terminate()


def start_as_owner(programs, folder):
    return start(programs, folder, "setpriv", "--reuid", str(OWNER.pw_uid), "--regid", str(OWNER.pw_gid), "--clear-groups", "--")


def said_until(daemon, what):
    said = ""
    for line in daemon.stderr:
        said += line
        if re.search(what, line):
            return said
    raise AssertionError(f"it ended without '{what}':\n{said}")


@pytest.mark.parametrize("end", [subprocess.Popen.terminate, subprocess.Popen.kill])
def test_its_owner_s_daemon_starts_where_root_s_was(programs, folder, end):
    with start(programs, folder) as roots:
        said_until(roots, " is ready")
        assert (folder / "lock").stat().st_mode & 0o777 == 0o600, "whoever can open it can lock it, and keep the next daemon from it"
        with start_as_owner(programs, folder) as refused:
            said_until(refused, f"in use by another gradringd \\(pid {roots.pid}\\)")
            assert refused.wait(20) == 2
        end(roots)
        roots.wait(20)
    with start_as_owner(programs, folder) as daemon:
        said_until(daemon, " is ready")
        assert (folder / "lock").read_text() == f"{daemon.pid}\n" and (folder / "lock").owner() == OWNER.pw_name
        with start(programs, folder) as refused:
            said_until(refused, f"in use by another gradringd \\(pid {daemon.pid}\\)")
