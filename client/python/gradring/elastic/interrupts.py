"""What takes a training function back to its beginning."""

from __future__ import annotations

from ..errors import HorovodInternalError

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt"]


class HostsUpdatedInterrupt(RuntimeError):
    """The ranks of the job are not those of the last commit. Raised on all of them at the same commit.

    Attributes:
        skip_sync: that all have the state already: no rank came in, and of nothing has each rank a part.
    """

    def __init__(self, skip_sync: bool = False):
        super().__init__("the ranks of the job have changed" + ("" if skip_sync else ", and have to sync their state"))
        self.skip_sync = skip_sync
