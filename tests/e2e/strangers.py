"""What a program can say at the daemon's doors that is no libgradring and no libzmq."""

import array
import os
import socket
import struct

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)


def become(uid):
    os.setgid(uid)
    os.setuid(uid)


# ---- ZeroMQ's protocol, at control.sock and at `listen` ----

def connect(where):
    """`where`: the path of a control.sock, or HOST:PORT."""
    if "/" in str(where):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        one.settimeout(10)
        one.connect(str(where))
        return one
    host, port = where.rsplit(":", 1)
    return socket.create_connection((host, int(port)), 10)


def take(one, count):
    """So many bytes."""
    got = b""
    while len(got) < count:
        more = one.recv(count - len(got))
        if not more:
            raise ConnectionResetError("the daemon closed the connection")
        got += more
    return got


def greeted(where, name=b""):
    """A connection that the daemon has let in, of one who calls itself so."""
    one = connect(where)
    body = b"\x05READY"
    for key, value in (b"Socket-Type", b"DEALER"), (b"Identity", name):
        body += bytes([len(key)]) + key + struct.pack(">I", len(value)) + value
    one.sendall(GREETING + b"\x04" + bytes([len(body)]) + body)
    take(one, len(GREETING))
    take(one, take(one, 2)[1])
    return one


def frame(message):
    size = bytes([0, len(message)]) if len(message) < 256 else b"\x02" + struct.pack(">Q", len(message))
    return size + message


def received(one):
    """The next message."""
    long = take(one, 1)[0] & 2
    return take(one, struct.unpack(">Q", take(one, 8))[0] if long else take(one, 1)[0])


# ---- protobuf ----

def number(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(index, value):
    if isinstance(value, int):
        return number(index << 3) + number(value)
    return number(index << 3 | 2) + number(len(value)) + value


def fields(message):
    """The last value of each field: a number, or bytes."""
    found, at = {}, 0

    def read():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = read()
        value = read()
        if tag & 7 == 2:
            value, at = message[at:at + value], at + value
        found[tag >> 3] = value
    return found


def query(what, **more):
    """A ClientMessage; `more`: fields of Query, as f4=..."""
    asked = field(1, what) + b"".join(field(int(key[1:]), value) for key, value in more.items())
    return field(1, 1) + field(2, 5) + field(8, asked)


# ---- sessions ----

class Session:
    def __init__(self, runtime_dir):
        self.runtime_dir = runtime_dir
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(10)
        self.socket.connect(f"{runtime_dir}/attach.sock")
        self.socket.sendall(field(1, field(1, 1)))
        self.welcome = fields(fields(self.socket.recv(4096))[1])

    def allocate(self, size=4096):
        """Memory of which it keeps no descriptor. Returns what a refusal says."""
        self.socket.sendall(field(2, field(1, 1) + field(2, size)))
        data, ancillary, _, _ = self.socket.recvmsg(4096, 64)
        for _, _, descriptors in ancillary:
            for descriptor in array.array("i", descriptors):
                os.close(descriptor)
        return "" if ancillary else data.decode(errors="replace")

    def control(self):
        """Its control connection."""
        one = greeted(f"{self.runtime_dir}/control.sock")
        opening = field(1, self.welcome[5]) + field(2, self.welcome[6])
        one.sendall(frame(field(1, 1) + field(2, 1) + field(3, opening)))
        return one


def joining(sessions):
    """The control connections of sessions that have asked for the places of a job, each for its own."""
    controls = [session.control() for session in sessions]
    for rank, one in enumerate(controls):
        received(one)
        one.sendall(frame(field(1, 1) + field(4, field(1, b"theirs") + field(3, rank) + field(4, len(sessions)))))
    return controls
