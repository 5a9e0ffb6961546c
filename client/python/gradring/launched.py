"""A rank of gradring.run: python -m gradring.launched RESULTS PAYLOAD"""

from __future__ import annotations

import base64
import os
import pickle
import sys
import traceback

from . import lifecycle, objects
from .world import rank


def main(results: str, payload: str) -> None:
    value, raised = None, None
    try:
        function, args, kwargs = pickle.loads(base64.b64decode(payload))
        value = function(*args, **kwargs)
        objects.dumps(value)
    except Exception:  # the caller is told, whatever it is
        value, raised = None, traceback.format_exc()
    # A job of its own: whatever became of the function's, its ranks meet here.
    lifecycle.shutdown()
    lifecycle.init(job=f"{os.environ.get('GRADRING_JOB', 'run')}.results", policy="fail")
    outcomes = objects.allgather_object((value, raised))
    if rank() == 0:
        with open(f"{results}.new", "wb") as file:
            pickle.dump(outcomes, file)
        os.replace(f"{results}.new", results)
    lifecycle.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
