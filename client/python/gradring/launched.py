"""A rank of gradring.run: python -m gradring.launched RESULTS PAYLOAD"""

from __future__ import annotations

import base64
import os
import pickle
import sys
import traceback
from pathlib import Path

from . import _native, lifecycle, objects, uncaught
from ._native import Code
from .elastic.loop import meet_after
from .errors import GradringError, behind
from .pickling import dumps
from .world import is_elastic, is_initialized, local_rank, world

ANSWERED = 86  # tools/run/ending.h, kAnswered: with 0 a function can end a process at any time


def main(results: str, payload: str) -> None:
    """An outcome is what the function returned, pickled for the caller, or its traceback, and whether an op or a job failed
    there: then another rank may know better why."""
    process = os.getpid()
    try:
        folders, called = pickle.loads(base64.b64decode(payload))
        sys.path += [folder for folder in folders if folder not in sys.path]
        function, args, kwargs = pickle.loads(called)
        outcome = dumps(function(*args, **kwargs)), None, False
    except (Exception, SystemExit) as error:  # the caller is told, whatever it is; others would wait for who just left
        if os.getpid() != process:
            raise  # of a process that the function forked, and that ends so: the rank is its parent
        traceback.print_exc()  # at once, as the others may be long in coming
        outcome = None, traceback.format_exc(), _is_of_what_failed(error)
        if not _is_elastic():
            # Before the ranks meet: the others may wait for this one's next op, in jobs of torch's groups too.
            _native.abort_all(f"ended by {uncaught.in_a_line(type(error), error)}")
    if os.getpid() != process:
        return
    outcomes = _of_those_left(outcome) if _is_elastic() else _of_all(outcome)
    # On the caller's host, where rank 0 of an elastic job need not be any more.
    if local_rank() == 0 and Path(results).parent.is_dir():
        new = f"{results}.{os.getpid()}"
        with open(new, "wb") as file:
            file.write(pickle.dumps(outcomes))
        os.replace(new, results)
    lifecycle.shutdown()
    sys.exit(ANSWERED)


def _is_of_what_failed(error: BaseException) -> bool:
    """Also where a framework, or the function, has made another error of it."""
    seen: set = set()
    while error is not None and id(error) not in seen:
        # Errors of callbacks inside PyTorch are a text in which there is nothing else of them.
        if behind(error) is not None or f"{GradringError.__name__}: " in uncaught.in_words(error):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _leave_groups_of_torch() -> None:
    """Who is through with the function has left what it did not destroy, as where a script ends."""
    torch = sys.modules.get("torch.distributed")
    if "gradring.torch" in sys.modules and torch.is_initialized():
        torch.destroy_process_group()


def _of_all(outcome: tuple) -> list:
    """In a job of its own: whatever became of the function's, its ranks meet here, however far apart they return."""
    _leave_groups_of_torch()
    lifecycle.shutdown()
    while not is_initialized():
        try:
            lifecycle.init_beside(f"{os.environ.get('GRADRING_JOB', 'run')}.results")
        except GradringError as error:
            if error.code != Code.DEADLINE or is_elastic(_native.told()["policy"]):
                raise  # of those that are lost nobody knows there
    return objects.allgather_object(outcome)


def _is_elastic() -> bool:
    return is_initialized() and world().elastic


def _of_those_left(outcome: tuple) -> list:
    """In the function's job, which knows who is left. Who raised is lost to the others, which may be training still."""
    if outcome[1] is not None:
        sys.exit(1)
    while True:
        try:
            return objects.allgather_object(outcome, "gradring.run")
        except GradringError as error:
            meet_after(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
