"""What torch.compile is to leave alone.

Where a compiled model computes, Dynamo looks at each Python function that begins, also at those that torch calls from C++, such as
an op that DDP starts or a hook of a parameter. Ours are locks, clocks and calls of the library, of which it makes errors.
"""

from __future__ import annotations

import inspect
from typing import Any

try:  # what torch._dynamo.disable and skip are made of; those take torch._dynamo, whose import takes seconds, and a call more
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

    _UNTRACED = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
except ImportError:  # an older torch, where each call takes some microseconds more
    _UNTRACED = None


def untraced(what: Any) -> Any:
    """A function that runs as it is, with all that it calls; or a class, of whose own methods that is so."""
    if inspect.isclass(what):
        for name, one in list(vars(what).items()):
            if inspect.isfunction(one) and not hasattr(one, "__wrapped__"):  # else its code is that of others, too
                setattr(what, name, untraced(one))
        return what
    if _UNTRACED is None:
        from torch._compile import _disable_dynamo

        return _disable_dynamo(what)
    what._torchdynamo_disable, what._torchdynamo_disable_msg = True, "gradring's"  # for what is inlined
    set_code_exec_strategy(what.__code__, _UNTRACED)
    return what
