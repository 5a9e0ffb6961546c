"""Says what it finds at its beginning, as every rank should; then each ends in another way."""

import atexit
import ctypes
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import torch
from report import say

PR_GET_PDEATHSIG = 2
RANK = int(os.environ["RANK"])


class Mine:
    pass


def said_by(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()


death_of_parent = ctypes.c_int()
ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(death_of_parent))
say(words=[sys.argv[0], *sys.argv[2:]], path=sys.path, folder=os.getcwd(), names=[__name__, __file__, __doc__, str(__spec__)],
    picklable=type(pickle.loads(pickle.dumps(Mine()))) is Mine,
    environment=dict(os.environ), of_c=sorted(said_by("env")), network=os.readlink("/proc/self/ns/net"),
    leads_session=os.getsid(0) == os.getpid(), death_of_parent=death_of_parent.value, threads=len(os.listdir("/proc/self/task")),
    files=os.listdir("/proc/self/fd"), input=os.readlink("/proc/self/fd/0"), inherited=said_by("readlink", "/proc/self/fd/0"),
    signals=[str(signal.getsignal(one)) for one in signal.valid_signals()], blocked=list(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
say(drawn=[random.random(), np.random.random(), torch.rand(1).item()])
atexit.register(lambda: say(at_exit=RANK))
threading.Thread(target=lambda: time.sleep(0.3) or say(waited_for=RANK)).start()
if RANK == 0:
    sys.exit(3)
if RANK == 1:
    raise ValueError("so it ends")
if RANK == 2:
    raise KeyboardInterrupt
os.kill(os.getpid(), signal.SIGKILL)
