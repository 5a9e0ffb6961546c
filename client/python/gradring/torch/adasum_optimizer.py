"""Steps that are combined by Adasum, instead of gradients."""

from __future__ import annotations

from typing import Any

import torch

from ..reduce_ops import Adasum
from .backward import Passes
from .compression import Packed
from .ops import start_allreduce
from .untraced import untraced


class AdasumSteps(Passes):
    """What DistributedOptimizer adds to an optimizer's class for Adasum: each rank takes the step that its own
    gradients suggest, and all end where the combination of these steps leads."""

    def _begin_adasum(self, compression):
        self._compression = compression
        self._exchanged = self._trainable() if self._process_set.included() else []
        self._watch(self._exchanged)

    def synchronize(self) -> None:
        """Nothing: gradients stay this rank's."""

    def skip_synchronize(self):
        raise AssertionError("optimizer.skip_synchronize() with Adasum: it is steps that are exchanged, in step()")

    @torch.no_grad()
    @untraced
    def step(self, closure=None) -> Any:
        """Raises GradringError."""
        if self._process_set.included():
            self._exchanged += self._watch_new()
        starts = [one.detach().clone() for one in self._exchanged]
        loss = super().step(closure)
        steps = [torch.sub(one, start) for one, start in zip(self._exchanged, starts, strict=True)]
        packed = [Packed(self._compression, [one]) for one in steps]
        handles = [start_allreduce(one.tensors, one.tensors, Adasum, self._parameter_names[parameter], 1.0, 1.0,
                                   self._process_set)
                   for parameter, one in zip(self._exchanged, packed, strict=True)]
        for parameter, start, one, handle in zip(self._exchanged, starts, packed, handles, strict=True):
            parameter.copy_(start + one.unpacked(handle.wait())[0])
        self._start_anew()
        return loss

    step.hooked = True  # the optimizer's own is wrapped already
