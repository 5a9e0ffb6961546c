"""Counting backward passes, parameter by parameter."""

from __future__ import annotations

import weakref
from collections import Counter

import torch

from .options import same_groups
from .untraced import untraced


def check_passes(passes) -> None:
    """Raises TypeError and ValueError for what is no number of them."""
    if not hasattr(passes, "__index__"):
        raise TypeError(f"gradring: backward_passes_per_step is {passes!r}; it takes a whole number")
    if passes <= 0:
        raise ValueError(f"gradring: backward_passes_per_step is {passes}; it must be 1 at least")


def named_pairs(optimizer, named_parameters) -> list[tuple[str, torch.Tensor]]:
    """A name for each of the optimizer's parameters. Raises ValueError unless there is one, and one only."""
    if named_parameters is None:
        return _named_by_place(optimizer)
    pairs = list(named_parameters)
    if not all(isinstance(one, tuple) for one in pairs):
        raise ValueError("gradring: named_parameters must be (name, parameter) pairs, such as model.named_parameters()")
    twice = sorted(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
    if twice:
        raise ValueError(f"gradring: parameters of one name in named_parameters: {', '.join(twice)}")
    known = {id(parameter) for _, parameter in pairs}
    without = [tuple(parameter.shape) for group in optimizer.param_groups for parameter in group["params"]
               if id(parameter) not in known]
    if without:
        raise ValueError(f"gradring: named_parameters lacks {len(without)} of the optimizer's parameters, of shapes "
                         f"{', '.join(map(str, without[:5]))}")
    return pairs


def _named_by_place(optimizer):
    return [(f"allreduce.noname.{i}.{j}", parameter) for i, group in enumerate(optimizer.param_groups)
            for j, parameter in enumerate(group["params"])]


@untraced
class Passes:
    """A part of optimizers' classes: knows of which parameters the gradients are complete.

    Attributes:
        backward_passes_per_step: how many passes make a gradient.
    """

    def _begin(self, pairs, backward_passes_per_step, process_set):
        self._parameter_names = {parameter: name for name, parameter in pairs}
        self._process_set = process_set
        self.backward_passes_per_step = backward_passes_per_step
        self._left: dict[torch.Tensor, int] = {}  # passes

    def _trainable(self):
        return [one for group in self.param_groups for one in group["params"] if one.requires_grad]

    def _watch_new(self) -> list[torch.Tensor]:
        """Parameters that are trained only by now: they were frozen, or have come in by add_param_group(). Without an
        exchange the ranks would drift apart, and nobody would be told."""
        new = [one for one in self._trainable() if one not in self._left]
        if new:
            for name, one in _named_by_place(self):
                self._parameter_names.setdefault(one, name)
            self._watch(new)
        return new

    def _watch(self, parameters):
        # Models outlive optimizers.
        mine = weakref.ref(self)

        @untraced
        def told(parameter):
            if (optimizer := mine()) is not None:
                optimizer._count(parameter)
        for one in parameters:
            self._left[one] = self.backward_passes_per_step
            one.register_post_accumulate_grad_hook(told)

    def _count(self, parameter):
        if self._left[parameter] == 0:
            raise AssertionError(
                f"the gradient of {self._parameter_names[parameter]} was computed more than backward_passes_per_step "
                f"({self.backward_passes_per_step}) times before step(): raise it to add gradients up on this rank")
        self._left[parameter] -= 1
        if self._left[parameter] == 0:
            self._passed(parameter)

    def _passed(self, parameter):
        """For whoever has something to do then."""

    def _under_way(self) -> bool:
        """Whether anything came by since the last exchange."""
        return any(left != self.backward_passes_per_step for left in self._left.values())

    def _start_anew(self):
        for one in self._left:
            self._left[one] = self.backward_passes_per_step

    def set_backward_passes_per_step(self, passes: int) -> None:
        """From the next step on."""
        check_passes(passes)
        self.backward_passes_per_step = passes
        self._start_anew()

    def zero_grad(self, *args, **keywords) -> None:
        """The optimizer's own. Raises AssertionError between backward() and step() or synchronize()."""
        if self._under_way():
            raise AssertionError("optimizer.zero_grad() after backward() and before optimizer.step() or "
                                 "optimizer.synchronize(): gradients are being exchanged")
        super().zero_grad(*args, **keywords)

    def load_state_dict(self, state_dict) -> None:
        """The optimizer's own, for schedules that are those of the optimizer that was given, too."""
        self._start_anew()
        with same_groups(self):
            super().load_state_dict(state_dict)
