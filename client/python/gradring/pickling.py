"""Pickles what other ranks are to have."""

from __future__ import annotations

import pickle
from typing import Any, Callable


def by_value() -> Callable[[Any], bytes] | None:
    """What pickles functions and classes of scripts and notebooks as well; None where `cloudpickle` is not installed.

    It is looked for anew each time: a notebook may have installed it since.
    """
    try:
        from cloudpickle import dumps as all_of_it
    except ImportError:
        return None
    return all_of_it


def dumps(obj: Any) -> bytes:
    return (by_value() or pickle.dumps)(obj)
