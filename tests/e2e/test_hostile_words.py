"""What strangers say at control.sock takes little memory, however much it is."""

import subprocess
import sys

import pytest
from checks import events, wait_for_all
from cluster import wait_until
from test_hostile import STRANGERS, as_stranger, assert_takes_little, assert_undisturbed, innocent

SAYS_NO_END = """
import sys
one, sent = greeted(f"{sys.argv[1]}/control.sock"), 0
part = b"\\x03" + struct.pack(">Q", 128 << 10) + bytes(128 << 10)  # of which more is to come
try:
    while sent < 256 << 20:
        one.sendall(part)
        sent += len(part)
except OSError:
    pass
print(sent)
"""


def test_a_message_without_an_end(pair):
    """libzmq keeps all parts of it until the last has come."""
    job = innocent(pair)
    assert int(as_stranger(SAYS_NO_END, pair.nodes[0].runtime_dir)) < 32 << 20
    wait_until(lambda: "of a message without an end" in pair.nodes[0].log(200), 10, "a word of it in the log")
    assert_undisturbed(job)


SAYS_MUCH_BEFORE_ITS_KEY = """
import sys
one, sent = connect(sys.argv[1]), 0
one.sendall(GREETING.replace(b"NULL\\0", b"CURVE"))
take(one, len(GREETING))
one.sendall(b"\\x06" + struct.pack(">Q", 24 << 20))
try:
    while sent < 24 << 20:
        one.sendall(bytes(64 << 10))
        sent += 64 << 10
except OSError:
    pass
print(sent)
"""


def test_much_from_who_has_no_key(pair):
    """Messages of peers may be long, and nobody knows by then whether it is one."""
    job = innocent(pair)
    node = pair.nodes[0]
    sent = as_stranger(SAYS_MUCH_BEFORE_ITS_KEY, node.address, prefix=pair.nodes[1].prefix)
    assert int(sent) < 16 << 20
    assert_undisturbed(job)


SUBMITS_NONSENSE = """
import sys, threading
nonsense = frame(field(1, 1) + field(5, field(1, 99) + field(2, field(1, 1)) * 60_000))
def flood(one):
    while True:
        one.sendall(nonsense)
def drain(one):
    while one.recv(1 << 20):
        pass
sessions = [Session(sys.argv[1]) for _ in range(4)]
for one in [session.control() for session in sessions]:
    one.settimeout(None)
    for work in flood, drain:
        threading.Thread(target=work, args=(one,), daemon=True).start()
print("floods", flush=True)
sys.stdin.read()
os._exit(0)
"""


def test_more_submissions_than_are_looked_at(make_cluster):
    """What waits is little of each connection: libzmq counts messages, however long they are."""
    cluster = make_cluster(2).start()
    job = innocent(cluster)
    # most of it ends that are yet to be read
    assert_takes_little(cluster.nodes[0], 400, SUBMITS_NONSENSE, "floods")
    assert_undisturbed(job)


COMES_AND_SAYS_MUCH = """
import sys, threading
become(12345)
nonsense = frame(field(1, 1) + field(5, field(2, field(1, 5)) * 60_000))
def flood():
    while True:
        try:
            with greeted(f"{sys.argv[1]}/control.sock") as one:
                for _ in range(14):
                    one.sendall(nonsense)
        except OSError:  # it was closed, or the backlog is full
            pass
for _ in range(2):
    threading.Thread(target=flood, daemon=True).start()
print("floods", flush=True)
sys.stdin.read()
os._exit(0)
"""


def test_much_from_connections_that_are_gone(make_cluster):
    """libzmq keeps what they said, and they may come again before it is read."""
    cluster = make_cluster(2).start()
    job = innocent(cluster)
    assert_takes_little(cluster.nodes[0], 600, COMES_AND_SAYS_MUCH, "floods", seconds=5.0)
    assert_undisturbed(job)


SAYS_MUCH_AGAIN = """
import sys
with greeted(f"{sys.argv[1]}/control.sock") as one:
    one.settimeout(20)
    one.sendall(frame(field(1, 1) + field(2, 77) + field(5, field(2, field(1, 5)) * 3000)))
    heard = b""
    while b"attach first" not in heard:
        heard += one.recv(4096)
print("refused by its number" if bytes([0x08, 77, 0x3a]) in heard else heard, flush=True)
"""


def test_much_without_a_session_is_refused_by_its_number(make_cluster):
    """After a restart of the daemon a library's old connection says again what it had not sent. A refusal without a number would
    end the session, which goes on by another connection."""
    node = make_cluster(1).start().nodes[0]
    assert as_stranger(SAYS_MUCH_AGAIN, node.runtime_dir).strip() == "refused by its number"


BEGINS_MANY_MESSAGES = """
import sys
become(12345)
part = b"\\x03" + struct.pack(">Q", 128 << 10) + bytes(128 << 10)  # of which more is to come
held = []
for _ in range(200):
    try:
        held.append(one := greeted(f"{sys.argv[1]}/control.sock"))
        for _ in range(24):
            one.sendall(part)
    except OSError:
        pass
print("began", flush=True)
sys.stdin.read()
"""


def test_many_messages_without_an_end(make_cluster):
    """Each is shorter than one may be, and together they are bounded for one user."""
    cluster = make_cluster(2).start()
    job = innocent(cluster)
    node = cluster.nodes[0]
    assert_takes_little(node, 400, BEGINS_MANY_MESSAGES, "began")
    wait_until(lambda: "that user had sent" in node.log(200), 10, "a word of it in the log")
    assert_undisturbed(job)


HOLDS_OPS = """
import sys, threading
runtime_dir, ranks = sys.argv[1], 100
sessions = [Session(runtime_dir) for _ in range(ranks)]
controls = joining(sessions)
first = controls[0]
assert 3 in fields(received(first)), "joined"
first.settimeout(None)
def drain():
    while first.recv(1 << 20):
        pass
threading.Thread(target=drain, daemon=True).start()
barrier = field(4, field(1, 3) + field(2, 9))
digest = 0xcbf29ce484222325
for _ in range(8 * ranks * ranks):  # of counts that are 0
    digest = digest * 0x100000001b3 % (1 << 64)
alltoall = field(1, 10) + field(2, 1) + field(6, ranks) + number(9 << 3 | 1) + struct.pack("<Q", digest)
many = sys.argv[2] == "many"
rest = barrier if many else field(4, alltoall) + field(10, bytes(ranks * ranks))
ops = [field(2, field(1, 1 + op) + field(2, field(2, op)) + rest) for op in range(40_000 if many else 2_000)]
together = 500 if many else 1
for at in range(0, len(ops), together):
    first.sendall(frame(field(1, 1) + field(5, b"".join(ops[at:at + together]))))
print("submitted", flush=True)
sys.stdin.read()
os._exit(0)
"""


@pytest.mark.parametrize("ops", ["many", "of many counts"])
def test_ops_that_others_do_not_submit(make_cluster, ops):
    """Each has a place for every rank, and may have a table of the counts of its blocks, one for each pair of ranks. When
    all ranks end at once, each may be the one that each of the ops waits for."""
    cluster = make_cluster(2).start()
    job = innocent(cluster)
    assert_takes_little(cluster.nodes[0], 350, HOLDS_OPS, "submitted", ops)
    assert_undisturbed(job)


ASKS_OF_MANY_OPS = """
import os, sys, threading, time
runtime_dir, ranks, each = sys.argv[1], 4, 50_000
sessions = [Session(runtime_dir) for _ in range(ranks)]
controls = joining(sessions)
for one in controls:
    assert 3 in fields(received(one)), "joined"
barrier = field(4, field(1, 3) + field(2, 9))
for rank, one in enumerate(controls):
    ops = [field(2, field(1, 1 + op) + field(2, field(2, rank * each + op)) + barrier) for op in range(each)]
    for at in range(0, each, 500):
        one.sendall(frame(field(1, 1) + field(5, b"".join(ops[at:at + 500]))))
asks = [greeted(f"{runtime_dir}/control.sock") for _ in range(4)]
questions = frame(query(3, f2=b"theirs")) * 20
def flood(one):
    while True:
        one.sendall(questions)
def drain(one):
    while one.recv(1 << 20):
        pass
for one in asks:
    one.settimeout(None)
    for work in flood, drain:
        threading.Thread(target=work, args=(one,), daemon=True).start()
print("asks", flush=True)
sys.stdin.read()
os._exit(0)
"""


def test_who_asks_of_many_ops(make_cluster):
    """The data thread has time for everybody's while it tells of them."""
    cluster = make_cluster(2, settings={"suspect": "500ms", "decide": "1500ms"}).start()
    job = innocent(cluster)
    with subprocess.Popen([sys.executable, "-c", "from strangers import *\n" + ASKS_OF_MANY_OPS,
                           cluster.nodes[0].runtime_dir], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env=STRANGERS) as stranger:
        assert stranger.stdout.readline() == b"asks\n"
        so_far = len(events(job[0], "done"))
        wait_for_all(job, "done", so_far + 100)
        assert_undisturbed(job)
        stranger.kill()


FAILS_AT_LENGTH = """
import sys
runtime_dir, ranks = sys.argv[1], 4
sessions = [Session(runtime_dir) for _ in range(ranks)]
controls = joining(sessions)
for one in controls:
    one.settimeout(60)
handles = [fields(fields(received(one))[3])[1] for one in controls]
barrier = field(4, field(1, 3) + field(2, 9))
ops = [field(2, field(1, 1 + op) + field(2, field(2, op)) + barrier) for op in range(30_000)]
for one in controls[1:]:
    for at in range(0, len(ops), 500):
        one.sendall(frame(field(1, 1) + field(5, b"".join(ops[at:at + 500]))))
for one in controls[1:]:  # what it says now comes behind all these
    one.sendall(frame(query(0)))
    received(one)
controls[0].sendall(frame(field(1, 1) + field(6, field(1, handles[0]) + field(2, bytes(10_000)))))
print("failed", flush=True)
sys.stdin.read()
"""


def test_many_ops_that_fail_at_length(make_cluster):
    """Each tells every rank why, twice."""
    cluster = make_cluster(2).start()
    job = innocent(cluster)
    assert_takes_little(cluster.nodes[0], 350, FAILS_AT_LENGTH, "failed", seconds=3.0)
    assert_undisturbed(job)


SHARES_NOTHING = """
import sys
session = Session(sys.argv[1])
one = session.control()
received(one)
for _ in range(100):
    one.sendall(frame(field(1, 1) + field(2, 7) + field(10, field(1, 1))))
    assert b"gpu-sums" in received(one)
"""


def test_memory_of_gpus_that_sum_for_nobody(pair):
    """The log does not tell of each that is refused."""
    as_stranger(SHARES_NOTHING, pair.nodes[0].runtime_dir)
    assert "by way of its trainer" not in pair.nodes[0].log(200)


NAMES_WHAT_IS_NO_TEXT = """
import sys
one = greeted(f"{sys.argv[1]}/control.sock")
for _ in range(100):
    one.sendall(frame(query(3, f2=b"\\xff\\xfe")))
    assert b"malformed" in received(one)
"""


def test_names_that_are_no_text(pair):
    """Protobuf has a line on stderr for each, which is the log, and nobody bounds them."""
    as_stranger(NAMES_WHAT_IS_NO_TEXT, pair.nodes[0].runtime_dir)
    assert "UTF-8" not in pair.nodes[0].log(200)
