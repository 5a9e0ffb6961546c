"""Strangers at the daemon's doors: they get nothing, and everybody else goes on."""

import errno
import os
import random
import resource
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import strangers
from checks import TRAINER, events, wait_for_all
from cluster import wait_until

CONNECTS = 10_000


def innocent(cluster):
    job = cluster.launch("innocent", [TRAINER, "--ops", "100000", "--delay-ms", "5"])
    wait_for_all(job, "done", 2)
    return job


def assert_undisturbed(job):
    """Ops that were submitted after now still end well."""
    so_far = len(events(job[0], "done"))
    wait_for_all(job, "done", so_far + 3)
    assert all(one["verdict"] == 1 and one["right"] for trainer in job for one in events(trainer, "done"))
    job.kill()


def assert_takes_little(node, mebibytes, script, ready, *words, seconds=2.0, before=None):
    """The daemon has no more memory than so much more, or more than `before`, in the seconds after a stranger says that it
    is ready."""
    if before is None:
        before = node.footprint().rss_bytes
    most = 0
    with subprocess.Popen([sys.executable, "-c", "from strangers import *\n" + script, node.runtime_dir, *words],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=STRANGERS) as stranger:
        assert stranger.stdout.readline().decode() == f"{ready}\n"
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            most = max(most, node.footprint().rss_bytes - before)
            time.sleep(0.1)
        stranger.stdin.close()
    assert most < mebibytes << 20, f"{most >> 20} MiB"


def connect(path, kind):
    one = socket.socket(socket.AF_UNIX, kind)
    one.settimeout(10)
    # A full backlog answers EAGAIN at once, whatever the time-out says.
    for _ in range(2000):
        try:
            one.connect(str(path))
            break
        except BlockingIOError:
            time.sleep(0.005)
    else:
        raise TimeoutError(f"{path}: the backlog stayed full for 10 s")
    return one


def test_garbage(pair):
    job = innocent(pair)
    dice = random.Random(1)
    node = pair.nodes[0]
    for _ in range(200):
        with connect(node.runtime_dir / "attach.sock", socket.SOCK_SEQPACKET) as stranger:
            try:
                stranger.send(dice.randbytes(dice.choice([1, 7, 100, 4000])))
                stranger.recv(4096)  # a refusal, or the end
            except OSError as error:
                assert error.errno in (errno.EPIPE, errno.ECONNRESET), error
        with connect(node.runtime_dir / "control.sock", socket.SOCK_STREAM) as stranger:
            try:
                stranger.send(dice.randbytes(dice.choice([1, 64, 4000])))
            except OSError as error:
                assert error.errno in (errno.EPIPE, errno.ECONNRESET), error
    address, port = node.address.rsplit(":", 1)
    if pair.network.kind == "namespaces":
        script = f"for i in $(seq 50); do head -c 500 /dev/urandom >/dev/tcp/{address}/{port}; done"
        pair.network.inside(1, "bash", "-c", f"({script}) 2>/dev/null; true")
    assert_undisturbed(job)


def data_ports(node, control_port):
    """Where the node's daemon listens for gradients."""
    pid = node.daemon_pid()
    sockets = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.exists() or fd.is_symlink()}
    ports = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        listens = words[3] == "0A"
        if listens and f"socket:[{words[9]}]" in sockets:
            ports.add(int(words[1].split(":")[1], 16))
    return ports - {control_port}


STRANGER = """
import random, socket, sys
address, port = sys.argv[1], int(sys.argv[2])
dice = random.Random(1)
silent = [socket.create_connection((address, port), 10) for _ in range(400)]
for _ in range(100):
    with socket.create_connection((address, port), 10) as one:
        try:
            one.sendall(b"GRDTCP01"[: dice.choice([0, 8])] + dice.randbytes(dice.choice([1, 40, 5000])))
        except ConnectionError:
            pass
closed = 0
for one in silent:
    one.settimeout(0.01)
    try:
        closed += one.recv(1) == b""
    except TimeoutError:
        pass
    except ConnectionError:
        closed += 1
print(closed)
"""


def test_garbage_at_the_data_port(pair):
    """Strangers are shut out, the silent ones too when there are many, and no frame of theirs is looked at."""
    job = innocent(pair)
    node = pair.nodes[0]
    address, port = node.address.rsplit(":", 1)
    (data_port,) = data_ports(node, int(port))
    closed = subprocess.run([*pair.nodes[1].prefix, sys.executable, "-c", STRANGER, address, str(data_port)], timeout=60,
                            check=True, stdout=subprocess.PIPE).stdout
    assert int(closed) >= 400 - 256, closed
    assert_undisturbed(job)


def test_ten_thousand_connects(pair):
    """Not one of them speaks; those that stay are turned away at the caps, and a new trainer still gets in."""
    job = innocent(pair)
    node = pair.nodes[0]
    held = []
    try:
        for number in range(CONNECTS):
            one = connect(node.runtime_dir / "attach.sock", socket.SOCK_SEQPACKET)
            if number % 50 == 0:
                held.append(one)
            elif number % 2:
                one.close()
            else:  # leaves with a reset instead of a goodbye
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.close()
        newcomer = pair.launch("newcomer", [TRAINER, "--ops", "3"])
        assert newcomer.wait(60) == [0, 0], [one.says() for one in newcomer]
        assert_undisturbed(job)
    finally:
        for one in held:
            one.close()


def leave_descriptors(pid, few):
    """Bounds the process so that it can have so many more."""
    highest = max(int(fd.name) for fd in Path(f"/proc/{pid}/fd").iterdir())
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1 + few, hard))


def closed_unread(stranger):
    """Whoever libzmq has accepted gets its greeting first."""
    try:
        return stranger.recv(1) == b""
    except ConnectionResetError:
        return True


def test_connects_that_take_all_descriptors(pair):
    """At control.sock it is libzmq that accepts, and it ends its process where there is no descriptor."""
    job = innocent(pair)
    node = pair.nodes[0]
    pid = node.daemon_pid()
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    held = []
    try:
        leave_descriptors(pid, 100)
        held = [connect(node.runtime_dir / "control.sock", socket.SOCK_STREAM) for _ in range(200)]
        assert 0 < sum(closed_unread(one) for one in held) < len(held)
        with connect(node.runtime_dir / "attach.sock", socket.SOCK_SEQPACKET) as late:
            assert b"LimitNOFILE" in late.recv(4096)
        # Even what was left for the daemon itself may be gone.
        leave_descriptors(pid, -1)
        for _ in range(20):
            with connect(node.runtime_dir / "control.sock", socket.SOCK_STREAM) as late:
                assert closed_unread(late)
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        for one in held:
            one.close()
    wait_until(lambda: node.peers("up"), 10, "the daemon answers again")
    assert node.daemon_pid() == pid
    assert "no file descriptors left for whoever connects" in node.log(200)
    assert_undisturbed(job)


STRANGERS = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}


def as_stranger(script, *arguments, prefix=()):
    """Runs it with what strangers.py has; returns what it prints."""
    return subprocess.run([*prefix, sys.executable, "-c", "from strangers import *\n" + script, *map(str, arguments)],
                          timeout=100, check=True, text=True, stdout=subprocess.PIPE, env=STRANGERS).stdout


# Of a process in which nobody has called srand(), the routing ids of libzmq's first two ROUTERs begin after these.
UNSEEDED = {"control": 1804289383, "listen": 1681692777 | 1 << 31}

THIEF = """
import sys
where, number = sys.argv[1], int(sys.argv[2])
thieves = [greeted(where, b"\\0" + struct.pack(">I", number + ahead)) for ahead in (50, 100, 200)]
for _ in range(300):
    greeted(where).close()
"""


@pytest.mark.parametrize("door", UNSEEDED)
def test_a_stranger_that_takes_the_name_of_the_next(make_cluster, door):
    """libzmq ends its process when it comes to a routing id that is taken."""
    cluster = make_cluster(2, secure=False).start()  # with keys no stranger gets so far at `listen`
    job = innocent(cluster)
    node = cluster.nodes[0]
    pid = node.daemon_pid()
    where = node.runtime_dir / "control.sock" if door == "control" else node.address
    as_stranger(THIEF, where, UNSEEDED[door], prefix=cluster.nodes[1].prefix)
    assert node.daemon_pid() == pid
    assert_undisturbed(job)


def test_segments_that_take_all_descriptors(pair):
    """They leave what is kept back for peers."""
    job = innocent(pair)
    pid = pair.nodes[0].daemon_pid()
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    greedy = strangers.Session(pair.nodes[0].runtime_dir)
    try:
        leave_descriptors(pid, 100)
        refusals = [greedy.allocate() for _ in range(120)]
        assert sum(not one for one in refusals) < 90
        assert "no file descriptors left for another segment" in refusals[-1]
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        greedy.socket.close()
    assert_undisturbed(job)


ASKS_FOR_STATUS = """
import sys, threading, time
runtime_dir = sys.argv[1]
sessions = [Session(runtime_dir) for _ in range(8)]
for session in sessions:
    for _ in range(500):
        assert not session.allocate()
asks = [greeted(f"{runtime_dir}/control.sock") for _ in range(8)]
for one in asks:
    one.settimeout(None)
questions = frame(query(0)) * 50
def flood(one):
    while True:
        one.sendall(questions)
def drain(one):
    while one.recv(1 << 20):
        pass
for one in asks:
    for work in flood, drain:
        threading.Thread(target=work, args=(one,), daemon=True).start()
time.sleep(1)
waits = []
for _ in range(10):
    began = time.monotonic()
    Session(runtime_dir).socket.close()
    waits.append(time.monotonic() - began)
print(min(waits), flush=True)
os._exit(0)
"""


def test_many_who_ask_for_the_status(make_cluster, figure):
    """How many files are open is not counted for each of them, and they do not keep the others waiting."""
    cluster = make_cluster(2).start()
    job = innocent(cluster)
    wait = float(as_stranger(ASKS_FOR_STATUS, cluster.nodes[0].runtime_dir))
    figure(f"attached in {1000 * wait:.0f} ms at best while 8 connections asked for the status")
    assert wait < 0.15
    assert_undisturbed(job)


READS_NOTHING = """
import sys, time
runtime_dir, kind = sys.argv[1:]
asks = frame(query(5, f4=field(2, 0) + field(3, 64 << 10)))  # 64 KiB of the flight recorder
sessions = [Session(runtime_dir) for _ in range(3)] if kind == "session" else []
held = [one.control() for one in sessions] or [greeted(f"{runtime_dir}/control.sock") for _ in range(3)]
for one in held:
    one.settimeout(1)
    try:
        one.sendall(asks * 1000)
    except OSError:
        pass
print("asked", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["session", "guest"])
def test_answers_that_nobody_reads(make_cluster, kind):
    """They are counted in bytes."""
    cluster = make_cluster(2).start()
    job = innocent(cluster)
    node = cluster.nodes[0]
    before = node.footprint().rss_bytes
    for _ in range(2):  # nothing of the first is in the way of the second
        assert_takes_little(node, 80, READS_NOTHING, "asked", kind, before=before)
    assert_undisturbed(job)


def test_whoever_reads_gets_all_that_it_asked_for_at_once(pair):
    """As gradringctl does, of all nodes and jobs."""
    with strangers.greeted(pair.nodes[0].runtime_dir / "control.sock") as asks:
        asks.sendall(strangers.frame(strangers.query(0)) * 500)
        for _ in range(500):
            assert strangers.fields(strangers.received(asks))[1] == 5


def test_who_comes_and_goes_leaves_no_memory_behind(pair):
    """What libzmq frees fits into little of what it asks for then, and would stay the daemon's."""
    node = pair.nodes[0]
    before = node.footprint().rss_bytes
    for _ in range(3000):
        with strangers.greeted(node.runtime_dir / "control.sock") as asks:
            asks.sendall(strangers.frame(strangers.query(0)) * 20)
    wait_until(lambda: node.footprint().rss_bytes < before + (20 << 20), 20, "the daemon is as large as before")


def lingering(server):
    """A connection with so much to send that closing it takes 8 s."""
    one = socket.create_connection(server.getsockname())
    one.setblocking(False)
    try:
        while True:
            one.send(bytes(1 << 20))
    except BlockingIOError:
        pass
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 8))
    return one


@pytest.mark.parametrize("door", ["attach.sock", "control.sock"])
def test_a_descriptor_that_takes_long_to_close(pair, door):
    """Whoever drops the last reference to a socket waits until its data is sent, if its sender wants that."""
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 16):
        pytest.skip("before Linux 6.16 nobody can refuse a descriptor (docs/security.md)")
    job = innocent(pair)
    node = pair.nodes[0]
    kind = socket.SOCK_SEQPACKET if door == "attach.sock" else socket.SOCK_STREAM
    with socket.create_server(("127.0.0.1", 0)) as server:
        slow = [lingering(server) for _ in range(4)]  # at control.sock each keeps one thread of libzmq's, which has two
        callers = [connect(node.runtime_dir / door, kind) for _ in slow]
        for caller, one in zip(callers, slow):
            try:
                socket.send_fds(caller, [b"\xff"], [one.fileno()])
            except PermissionError:  # it is ours alone
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
            one.close()
        began = time.monotonic()
        node.ask("status")
        assert time.monotonic() - began < 4
    for caller in callers:
        caller.close()
    assert_undisturbed(job)
