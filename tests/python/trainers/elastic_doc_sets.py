"""Elastic training with the process sets of docs/elastic.md. Number 1 is lost as they are made anew, so that its partner has made the
first of two and not the second, and comes back, by the second word. Says of which ranks they are each time it
begins. STORE [again]"""

import os
import re
import sys
import time
from pathlib import Path

import gradring
import numpy as np
from gradring.elastic import HostsUpdatedInterrupt, ObjectState, run
from report import say

NUMBER = int(os.environ["RANK"])
THERE_AGAIN = sys.argv[2:] == ["again"]
state = ObjectState(met=0)
text = (Path(__file__).resolve().parents[3] / "docs/elastic.md").read_text(encoding="utf-8")
example = re.search(r"```python\nsets = \[\]\n(.*?)```", text, re.DOTALL)[0].strip("`").removeprefix("python\n")
add = gradring.add_process_set


def add_or_die(ranks):
    if state.met and NUMBER == 1 and not THERE_AGAIN and 0 not in ranks:
        os._exit(3)
    return add(ranks)


gradring.add_process_set = add_or_die
os.environ["GRADRING_POLICY"] = "elastic min=1"
exec(example)  # noqa: S102  (the document's)


@run
def train(state):
    say(sets=[one.ranks for one in sets])
    for one in sets:
        if one.included():
            assert gradring.allreduce(np.full(1, gradring.rank()), op=gradring.Sum, process_set=one) == sum(one.ranks)
    gradring.barrier()
    if gradring.size() == 4 and not state.met:
        state.met = 1
        raise HostsUpdatedInterrupt()
    while gradring.size() == 3:
        time.sleep(0.05)
        state.commit()


train(state)
