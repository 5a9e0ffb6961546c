"""The loop around a training function."""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable

from ..errors import GradringError, behind
from ..process_sets import abandon
from ..world import world
from .interrupts import HostsUpdatedInterrupt
from .state import State

MOST_IN_VAIN = 3  # returns to one and the same commit, with the same ranks


def run(function: Callable[..., Any]) -> Callable[..., Any]:
    """A training function, whose first argument is a State, that is called again when ranks were lost or came in.

    It begins with the state that all ranks share. After an op that failed, where the job goes on, that is the one of
    the last commit; after HostsUpdatedInterrupt the present one. Raises the op's GradringError where the job does not
    go on: it is not elastic, this node was excluded, fewer ranks are left than its policy asks for, or the same ranks
    have gone back to the same commit three times already, as the error does not go away then.
    """

    @functools.wraps(function)
    def begun_again(state: State, *args, **keywords):
        met = in_sync = False
        seen, in_vain = None, 0
        while True:
            try:
                if met:  # ranks may be lost in ops of the callbacks, too
                    state.on_reset()
                if not in_sync:
                    state.sync()
                    in_sync = True
                return function(state, *args, **keywords)
            except HostsUpdatedInterrupt as interrupt:
                in_sync = in_sync and interrupt.skip_sync  # what is not in sync stays so where a callback raises it
            except Exception as error:
                failed = behind(error)
                if failed is None:
                    raise
                now = _got_to(state)
                seen, in_vain = now, in_vain + 1 if now == seen else 0
                if in_vain == MOST_IN_VAIN:
                    raise failed
                in_sync = False
                state.restore()
                meet_after(failed)  # or the job is over, and nobody goes back
                logging.getLogger("gradring").warning("going back to the last commit: %s", failed)
                failed = None  # its traceback has what the function had: batches, results, groups that are over
            met = True
    return begun_again


def _got_to(state: State) -> tuple:
    """What differs from one error to the next where it is worth going back: the commit, and the ranks."""
    one = world()
    return state._passed, one.standing.numbers, one.grew


def meet_after(error: GradringError) -> None:
    """All ranks that are left, and such as come in, at one point. Raises the error where there is none."""
    if not world().elastic:
        raise error
    world().meet_after(error, abandon)
