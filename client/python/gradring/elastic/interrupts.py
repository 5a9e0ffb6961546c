"""What takes a training function back to its beginning."""

from __future__ import annotations

from ..errors import HorovodInternalError

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt"]


class HostsUpdatedInterrupt(RuntimeError):
    """The ranks of the job are not those of the last commit. Raised on all of them at the same commit.

    Attributes:
        skip_sync: that no rank came in, so that all have the state already.
    """

    def __init__(self, skip_sync: bool = False):
        super().__init__("the ranks of the job have changed" + ("" if skip_sync else ", and new ones need its state"))
        self.skip_sync = skip_sync
