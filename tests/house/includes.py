#!/usr/bin/env python3
"""Reads every #include and names those that run against the arrows of the house:

    tools -> client -> proto        daemon -> transport -> proto

daemon/core sees itself and the plain headers of proto alone. ROOMS below is the rule book.
usage: includes.py ROOT        exit 0: no complaint; 1: complaints on stdout
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import tree

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
SOURCES = (".h", ".hpp", ".cc", ".cpp", ".c", ".cu", ".cuh")

# Header families. A library that is not here has not been taken into the house yet: add it together with
# a line in docs/dependencies.md.
LIBRARIES = {
    "fmt": r"fmt/",
    "expected": r"tl/expected\.hpp$",
    "protobuf": r"google/protobuf/|[\w./]+\.pb\.h$",
    "zmq": r"zmq(_addon)?\.hp?p?$",
    "spdlog": r"spdlog/",
    "boost": r"boost/",
    "systemd": r"systemd/",
    "json": r"nlohmann/",
    "ucx": r"uc[pstm]/",
    "verbs": r"infiniband/",
    "hwloc": r"hwloc\.h$",
    "yaml": r"yaml-cpp/",
    "highway": r"hwy/",
    "isal": r"isa-l/",
    "prometheus": r"prometheus/",
    "cuda": r"cuda",
    "nccl": r"nccl",
    "gloo": r"gloo/",
    "oneccl": r"oneapi/ccl",
    "nanobind": r"nanobind/",
    "ncurses": r"curses\.h$",
}
STANDARD = re.compile(r"^[a-z_]+[0-9]*$|^std(int|def|bool)\.h$")
POSIX = re.compile(r"^\w+\.h$|^(sys|netinet|net|arpa|linux|bits|asm)/")

# Of proto, all that needs no protobuf and is not shared by two processes at one time.
PLAIN_PROTO = r"proto/(?!wire\.|ring\.|stream_word\.)\w+\.h$"
# The interfaces of transport: its own headers, and the segment, of which there is one body only.
INTERFACES = r"transport/(\w+|shm/segment)\.h$"
IMPURE = {"thread", "mutex", "shared_mutex", "condition_variable", "future", "atomic", "semaphore",
          "latch", "barrier", "stop_token", "chrono", "ctime", "fstream", "iostream", "ostream",
          "istream", "filesystem", "random", "csignal", "coroutine"}


@dataclass
class Room:
    path: str                 # regular expression: the files it holds
    own: tuple                # regular expressions: headers of the project that it may include
    libraries: tuple = ()
    posix: bool = False
    impure: bool = True       # may it use threads, clocks, streams of the standard library
    instead: str = ""         # what to do about a complaint


# The first room whose path matches a file is the file's room.
ROOMS = [
    Room(r"proto/(wire|ring|stream_word)\.", (r"proto/",), ("fmt", "expected", "protobuf"),
         instead="proto is what two processes agree on and nothing else; put the code into the program "
                 "that needs it."),
    Room(r"proto/", (PLAIN_PROTO,), ("fmt", "expected"), impure=False,
         instead="The plain headers of proto see the standard library alone, so that daemon/core and "
                 "transport can use them; what needs protobuf goes to proto/wire.*, the rest to the "
                 "program that needs it."),
    Room(r"daemon/core/", (r"daemon/core/", PLAIN_PROTO), ("fmt", "expected"), impure=False,
         instead="The core is pure: let it ask by an action, and let daemon/control or daemon/data do it "
                 "and answer with an event. Time comes in as `now`."),
    Room(r"transport/machine/", (r"transport/machine/", r"transport/interface_name\.h$", PLAIN_PROTO),
         ("fmt", "expected", "protobuf", "hwloc", "verbs", "yaml"), posix=True,
         instead="It says what a machine is made of, and what is near to what: nothing of jobs, peers or "
                 "the transport."),
    Room(r"transport/(?P<body>\w+)/", (INTERFACES, r"transport/{body}/", PLAIN_PROTO),
         ("fmt", "expected", "spdlog", "ucx", "verbs", "highway", "isal", "cuda", "nccl"), posix=True,
         instead="An engine moves or adds bytes and has no opinions: hand it what it needs as an "
                 "argument, let it tell by an event, and put what two bodies share into transport/."),
    Room(r"transport/", (INTERFACES, PLAIN_PROTO), ("fmt", "expected"), posix=True,
         instead="An interface knows none of its bodies and nothing of jobs; only daemon/main.cc, and of the "
                 "message transport daemon/lanes.cc, names a body."),
    Room(r"daemon/(main|lanes)\.cc$", (r"daemon/", r"transport/", r"proto/"),
         ("fmt", "expected", "protobuf", "zmq", "spdlog", "boost", "systemd"), posix=True,
         instead="The daemon is built from daemon, transport and proto; trainers' code stays in client."),
    Room(r"daemon/wire/", (r"daemon/wire/", r"daemon/core/", r"proto/"), ("fmt", "expected", "protobuf"), impure=False,
         instead="It turns the core's values into messages and back; what is done about them belongs to "
                 "daemon/control."),
    Room(r"daemon/keep/", (r"daemon/keep/", r"daemon/(clock|fd|fd_name)\.h$", r"daemon/core/time\.h$",
                           PLAIN_PROTO), ("fmt", "expected", "spdlog", "systemd"), posix=True,
         instead="The keeper is a parent that must not fail: no ZeroMQ, no protobuf, nothing of the daemon "
                 "that it keeps."),
    Room(r"daemon/metrics/", (r"daemon/metrics/", r"daemon/(clock|config|fd)\.h$", r"daemon/core/time\.h$",
                              r"daemon/data/(job_figures|op_stats)\.h$", PLAIN_PROTO),
         ("fmt", "expected", "prometheus"), posix=True,
         instead="What is shown to Prometheus is made from a snapshot; let daemon/control fill that in."),
    Room(r"daemon/", (r"daemon/", INTERFACES, r"proto/", r"transport/machine/(gids|gpu_watch|look_apart|port_watch)\.h$"),
         ("fmt", "expected", "protobuf", "zmq", "spdlog", "boost", "systemd", "json"), posix=True,
         instead="Speak to engines through the interface headers in transport/; daemon/main.cc and lanes.cc "
                 "alone choose a body and hand it in."),
    Room(r"client/include/", (r"gradring/",),
         instead="A public header shows the standard library alone; keep the rest inside client/."),
    Room(r"client/examples/", (r"client/examples/", r"gradring/"), ("fmt", "expected", "boost"),
         posix=True,
         instead="An example is what a user could write: it has <gradring/gradring.h> and no more."),
    Room(r"client/python/", (r"client/python/", r"gradring/"), ("nanobind",), posix=True,
         instead="The binding is made of <gradring/gradring.h>; what it misses there, others miss too."),
    Room(r"client/", (r"client/", r"gradring/", r"proto/"), ("fmt", "expected", "protobuf", "zmq"),
         posix=True,
         instead="The library speaks to the daemon by proto/client.proto and shared memory; move what "
                 "both need to proto."),
    Room(r"tools/lib/compare/", (r"tools/lib/compare/", r"gradring/"), ("gloo", "oneccl"), posix=True,
         instead="A rank of a peer knows that peer, and gradring's knows its library."),
    Room(r"tools/ctl/topology/", (r"tools/", r"transport/machine/(look|look_apart|recording)\.h$", r"proto/"),
         ("fmt", "expected", "protobuf", "boost", "json"), posix=True,
         instead="What is shown comes from the daemon; transport/machine is here for recordings alone."),
    Room(r"tools/ctl/top/screen\.", (r"tools/", r"proto/"), ("fmt", "expected", "ncurses"), posix=True,
         instead="What the screen shows is made without it, by top/frame."),
    Room(r"tools/", (r"tools/", r"gradring/", r"proto/"),
         ("fmt", "expected", "protobuf", "zmq", "boost", "json"), posix=True,
         instead="A tool is a client: it asks the daemon by proto/client.proto or through "
                 "<gradring/gradring.h>."),
]


def room_of(path):
    for room in ROOMS:
        match = re.match(room.path, path)
        if match:
            return room, match.groupdict()
    return None, {}


def complaint(path, header, quoted):
    """What is wrong with this include, or None."""
    room, names = room_of(path)
    if room is None:
        return None  # tests see everything
    if header.startswith("tests/"):
        return "nobody includes tests. Move what you need to the folder it belongs to."
    if any(re.match(own.replace("{body}", names.get("body", "")), header) for own in room.own):
        return None
    for name, family in LIBRARIES.items():
        if re.match(family, header):
            if name in room.libraries:
                return None
            return f"{name} is not for this folder. {room.instead}"
    if quoted:
        if "/" not in header or header.startswith("."):
            return "write the path from the root of the repository."
        return f"this arrow runs backwards. {room.instead}"
    if STANDARD.match(header):
        if not room.impure and header in IMPURE:
            return f"threads, clocks and streams have no place here. {room.instead}"
        return None
    if POSIX.match(header):
        return None if room.posix else f"the operating system has no place here. {room.instead}"
    return ("this header belongs to no library that the house knows. Add it to LIBRARIES in "
            "tests/house/includes.py and to docs/dependencies.md.")


def check(root):
    complaints = []
    for path in tree.files(root):
        if path.suffix not in SOURCES:
            continue
        for number, line in enumerate((tree.text_of(root / path) or "").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            wrong = complaint(path.as_posix(), match[1] or match[2], quoted=bool(match[1]))
            if wrong:
                complaints.append(f"{path}:{number}: {line.strip()}: {wrong}")
    return complaints


if __name__ == "__main__":
    found = check(Path(sys.argv[1]))
    print("\n".join(found) or "every include follows the arrows")
    sys.exit(1 if found else 0)
