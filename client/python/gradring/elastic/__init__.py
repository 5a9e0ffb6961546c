"""Training that goes on when ranks are lost, and when they come back.

    @gradring.elastic.run
    def train(state):
        while state.step < STEPS:
            ...
            state.step += 1
            state.commit()

    gradring.init()
    train(gradring.elastic.ObjectState(step=0, weights=weights))

The job has to be elastic: gradring-run --policy "elastic min=2" (or --min-np 2), or init(policy=...). Ranks that are
lost are not missed: sums are those of the ranks that are left. Ranks that come in do so at a commit, or at
check_host_updates(), and have the state of those that were there.
"""

from .interrupts import HorovodInternalError, HostsUpdatedInterrupt
from .loop import run
from .state import ObjectState, State

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "run"]
