"""Tensors of torch's own that are let live in memory which is shared with the daemon."""

from __future__ import annotations

import os
import resource
import threading
import weakref
from typing import NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import _native
from ..errors import GradringError

# Of the process's descriptors, that may be in use where another is taken for a storage: the rest is for all else that it does.
_MOST_DESCRIPTORS = 3 / 4


class _Resident(NamedTuple):
    storage: StorageWeakRef
    at: int  # where torch sees it
    memory: _native.Memory | None  # none: it could not be moved


class Residence:
    """The storages that were moved into a job's shared memory, under the addresses that they have.

    A storage that lives here is summed without a copy, and torch knows of nothing: every tensor on it, as the
    buckets of DDP and the gradients that are views of them, goes on as it was. Thread-safe.

    Only for storages of which nobody has the bare address, as NumPy arrays do. They cannot be sent to other
    processes by torch.multiprocessing.
    """

    def __init__(self, job: _native.Job):
        self._job = job
        self._residents: dict[int, _Resident] = {}
        self._lock = threading.Lock()
        # A residence that is dropped gives its memory back too, which others would then get.
        weakref.finalize(self, _send_home, self._residents).atexit = False

    def address_of(self, tensor: torch.Tensor) -> int:
        """Where the dense tensor is to be read and written: in shared memory, once it was moved there.

        Moves its storage if it is new here. Where that cannot be, because other processes share the storage, /dev/shm is
        full for the moment or descriptors are few, it stays what it is.
        """
        storage = tensor.untyped_storage()
        with self._lock:
            resident = self._residents.get(storage._cdata)
            if resident is None or resident.at != storage.data_ptr():
                self._forget_the_dead()
                resident = self._residents[storage._cdata] = self._move_in(storage)
        if resident.memory is None:
            return tensor.data_ptr()
        return resident.memory.address + tensor.data_ptr() - resident.at

    def leave(self):
        """All storages get memory of their own again."""
        with self._lock:
            _send_home(self._residents)

    def _forget_the_dead(self):
        for key in [key for key, one in self._residents.items() if one.storage.expired()]:
            del self._residents[key]

    def _move_in(self, storage):
        memory = None
        if not storage.is_shared() and _has_descriptors():
            try:
                memory = self._job.allocate_pages(storage.nbytes())
                # Gives the storage a mapping of its own, whose pages can be exchanged for the daemon's. torch
                # unmaps it with the storage, and keeps its file open until then.
                file, _ = storage._share_fd_cpu_()
                memory.show_at(storage.data_ptr())
                os.ftruncate(file, 0)  # of which nobody sees anything any more
            except (GradringError, RuntimeError, OSError):
                memory = None
        return _Resident(StorageWeakRef(storage), storage.data_ptr(), memory)


def _has_descriptors():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        with open(os.devnull) as lowest:
            return limit == resource.RLIM_INFINITY or lowest.fileno() < limit * _MOST_DESCRIPTORS
    except OSError:
        return False


def _send_home(residents):
    for resident in residents.values():
        storage = torch.UntypedStorage._new_with_weak_ptr(resident.storage.cdata)
        if storage is not None and resident.memory is not None and storage.data_ptr() == resident.at:
            resident.memory.hide_at(resident.at)
    residents.clear()
