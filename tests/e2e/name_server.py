"""A name server of one name: python3 name_server.py HOST FILE answers every question for an A with the addresses in FILE."""

import socket
import struct
import sys
from pathlib import Path

HEADER = struct.Struct("!HHHHHH")
ANSWERED, NAME_ERROR = 0x8180, 0x8183
A = 1


def answer_to(question, addresses):
    number, _, _, _, _, _ = HEADER.unpack_from(question)
    end = question.index(b"\0", HEADER.size) + 1 + 4  # the name, its type and its class
    kind, = struct.unpack_from("!H", question, end - 4)
    found = addresses if kind == A else []
    records = b"".join(struct.pack("!HHHIH", 0xC00C, A, 1, 1, 4) + socket.inet_aton(address) for address in found)
    flags = ANSWERED if addresses else NAME_ERROR
    return HEADER.pack(number, flags, 1, len(found), 0, 0) + question[HEADER.size:end] + records


def main(host, path):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((host, 53))
    while True:
        question, sender = server.recvfrom(512)
        server.sendto(answer_to(question, Path(path).read_text().split()), sender)


if __name__ == "__main__":
    main(*sys.argv[1:])
