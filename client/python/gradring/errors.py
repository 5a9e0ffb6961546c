"""What goes wrong, and who is to blame."""

from __future__ import annotations

from typing import Callable

from ._native import Cause, Code


class GradringError(RuntimeError):
    """A call that failed. Its text is one sentence that says what happened, to whom and what to do.

    Attributes:
        code: a `gradring.Code`; FAILED means that the op or the job failed.
        cause: why, a `gradring.Cause`; NONE where the call itself was refused.
        rank: the rank that is to blame, or None.
        node: its node, or None.
        pid: its process there, or None.
    """

    def __init__(self, message: str, code: int = Code.INTERNAL, cause: int = Cause.NONE, rank: int = -1,
                 node: str = "", pid: int = 0):
        super().__init__(message)
        self.code = Code(code)
        self.cause = Cause(cause)
        self.rank = rank if rank >= 0 else None
        self.node = node or None
        self.pid = pid or None

    def __reduce__(self):
        arguments = (str(self), int(self.code), int(self.cause), -1 if self.rank is None else self.rank,
                     self.node or "", self.pid or 0)
        return type(self), arguments


# As Horovod calls it.
HorovodInternalError = GradringError

Finder = Callable[[Exception], "GradringError | None"]

_finders: list[Finder] = []


def found_by(finder: Finder) -> None:
    """Of a framework that raises errors of its own where an op has failed in the midst of it. `finder`: says which error
    is behind one of those; None where it is another's."""
    _finders.append(finder)


def behind(error: Exception) -> GradringError | None:
    """The error itself, if it is ours, or the one of ours that a framework has made it of."""
    if isinstance(error, GradringError):
        return error
    return next((found for finder in _finders if (found := finder(error)) is not None), None)
