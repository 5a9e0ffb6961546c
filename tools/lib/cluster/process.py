"""Starting, watching and ending processes, and what /proc says about them."""

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

# Every process of a run carries this variable, and its children inherit it: so what is left of the run can be
# found even when its parent is gone.
MARK = "CLUSTER_RUN"

# Another cluster's settings, and those of a launcher above us, must not reach our processes.
FOREIGN = re.compile(r"^(GRADRING|OMPI|PMIX?|SLURM|TORCHELASTIC)_|^(RANK|WORLD_SIZE|(GROUP|LOCAL)_(RANK|WORLD_SIZE)"
                     r"|MASTER_ADDR|MASTER_PORT)$")


class TookTooLong(Exception):
    """Something that was waited for did not come about."""


def wait_until(condition, seconds, what):
    """Returns the first true value of condition(), which is asked again and again for so many seconds."""
    deadline = time.monotonic() + seconds
    pause = 0.01
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TookTooLong(f"{what}: not within {seconds:g} s")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def run(*command, seconds=20, text_in=None):
    """Runs a short command and returns its output; a failure is told with what it printed."""
    done = subprocess.run([str(word) for word in command], input=text_in, capture_output=True, text=True,
                          timeout=seconds, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: exit status {done.returncode}: "
                      f"{(done.stderr or done.stdout).strip()}")
    return done.stdout


def tail(path, lines=15):
    return "\n".join(Path(path).read_text(errors="replace").splitlines()[-lines:]) if Path(path).exists() else ""


def start_program(command, environment, out, err, prefix=(), uid=None, stdin=subprocess.DEVNULL):
    """As a child that is killed should this program end without having ended it."""
    identity = ["--reuid", str(uid), "--regid", str(uid), "--clear-groups"] if uid is not None else []
    # The prefix and setpriv replace themselves by the command.
    words = [*prefix, "setpriv", "--pdeathsig", "KILL", *identity, "--", *map(str, command)]
    return subprocess.Popen(words, stdin=stdin, stdout=out, stderr=err, env=environment, start_new_session=True)


class Process:
    """A process whose output goes to files, so that it never waits for a reader."""

    def __init__(self, name, command, folder, mark, environment=None, prefix=(), uid=None, start=start_program):
        self.name = name
        self.out = Path(folder) / f"{name}.out"
        self.err = Path(folder) / f"{name}.err"
        full = {key: value for key, value in os.environ.items() if not FOREIGN.search(key)}
        full.update(environment or {})
        full[MARK] = mark
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self._popen = start(command, full, out, err, prefix, uid)
        self.pid = self._popen.pid

    def running(self):
        return self._popen.poll() is None

    @property
    def status(self):
        """Exit status; minus the signal if one ended it; None while it runs."""
        return self._popen.poll()

    def wait(self, seconds):
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TookTooLong(f"{self.name} (pid {self.pid}) still runs after {seconds:g} s; "
                              f"it last said:\n{tail(self.err) or tail(self.out)}") from None

    def signal(self, number):
        if self.running():
            os.kill(self.pid, number)

    def kill(self):
        """SIGKILL, and the process is gone on return."""
        self.signal(signal.SIGKILL)
        self._popen.wait(10)

    def says(self):
        return self.out.read_text(errors="replace")

    def complains(self):
        return self.err.read_text(errors="replace")


@dataclass(frozen=True)
class Footprint:
    """What a process holds."""
    descriptors: int
    threads: int
    rss_bytes: int

    @staticmethod
    def of(pid):
        status = Path(f"/proc/{pid}/status").read_text()
        threads, rss = (int(re.search(rf"(?m)^{key}:\s*(\d+)", status)[1]) for key in ("Threads", "VmRSS"))
        return Footprint(len(os.listdir(f"/proc/{pid}/fd")), threads, rss * 1024)


def state_of(pid):
    """The letter of /proc/PID/stat, such as T for stopped; None if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def children_of(pid):
    """Pids, of a process of one thread."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []  # it ended meanwhile


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def marked(mark):
    """{pid: command line} of the living processes of a run."""
    found = {}
    for pid in _pids():
        try:
            if f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if state_of(pid) not in (None, "Z", "X"):
                    found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue  # ended meanwhile, or somebody else's
    return found


def segments_of(pid):
    """Inodes of the gradring segments that a process holds open or has mapped."""
    inodes = set()
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{fd}"
            try:
                if os.readlink(path).startswith("/memfd:gradring"):
                    inodes.add(os.stat(path).st_ino)
            except OSError:
                continue  # closed meanwhile
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if "/memfd:gradring" in line:
                inodes.add(int(line.split()[4]))
    except OSError:
        pass  # ended meanwhile, or somebody else's
    return inodes


def holders_of(inodes):
    """Pids of all processes that hold one of these segments."""
    return [pid for pid in _pids() if inodes & segments_of(pid)] if inodes else []
