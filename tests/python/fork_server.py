"""Forks ranks, at a word from forks.py: to import torch, as this process has done, takes each seconds of a processor else.

Its input is a socket. What is asked there and answered is JSON: of a script, along with the two files for its output, the
pid; of a pid the exit status as subprocess has it, or null while it runs. It ends when the socket does.
"""

import ctypes
import importlib.machinery
import json
import os
import signal
import socket
import sys
import types

import numpy as np
import torch._dynamo
import torch.distributed

PR_SET_PDEATHSIG = 1


def serve(channel):
    """Returns in ranks: the path of the script that each is to be."""
    server = os.getpid()
    while True:
        message, files, *_ = socket.recv_fds(channel, 1 << 20, 2)
        if not message:
            sys.exit()
        asked = json.loads(message)
        answer = fork() if files else status_of(asked)
        if answer == 0 and files:
            channel.close()
            become(asked, files, server)
            return asked["script"]
        for file in files:
            os.close(file)
        channel.send(json.dumps(answer).encode())


def fork():
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        sys.exit(f"the fork server has {threads} threads, and ranks would have the locks of those without them: what is "
                 "imported here must start none")
    return os.fork()


def status_of(pid):
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def become(asked, files, server):
    """What a process that start_program has started is from its beginning."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os.kill(os.getpid(), signal.SIGKILL)
    for number, file in enumerate([os.open(os.devnull, os.O_RDONLY), *files]):
        os.dup2(file, number)
        os.set_inheritable(number, True)  # a file that has the number has come without
        if file != number:
            os.close(file)
    os.environ.clear()
    os.environ.update(asked["environment"])
    np.random.seed()  # or all would draw the same, as only Python's own sees to itself
    torch.default_generator.seed()
    sys.argv = [asked["script"], *asked["words"]]
    sys.path[0] = os.path.dirname(asked["script"])


if __name__ == "__main__":
    script = serve(socket.socket(fileno=0))
    # Here, for what ends the script to end the interpreter, in the way of any.
    loader = importlib.machinery.SourceFileLoader("__main__", script)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__, main.__loader__ = script, loader
    exec(loader.source_to_code(loader.get_data(script), script), vars(main))
