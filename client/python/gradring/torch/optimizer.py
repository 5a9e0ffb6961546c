"""Optimizers that step by the gradients of all ranks."""

from __future__ import annotations

import contextlib
import math
import warnings
from numbers import Real
from typing import Any, Iterable, Sequence

import torch

from ..compression import checked as checked_compression
from ..handles import Handle, MappedHandle
from ..process_sets import ProcessSet, checked, global_process_set
from ..reduce_ops import Adasum, Average, check_op
from ..world import size, world
from .adasum_optimizer import AdasumSteps
from .backward import Passes, check_passes, named_pairs
from .compression import Compression, Packed
from .functions import broadcast_object
from .ops import sparse_allreduce_async, start_allreduce
from .untraced import untraced

_MEANWHILE = ("after backward() and before optimizer.step(), while they are exchanged: call optimizer.synchronize() first, change "
              "gradients then, and step within optimizer.skip_synchronize()")


def DistributedOptimizer(optimizer: torch.optim.Optimizer,
                         named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
                         compression=Compression.none, backward_passes_per_step: int = 1, op=Average,
                         gradient_predivide_factor: float = 1.0, num_groups: int = 0,
                         groups: int | Sequence[Sequence[torch.Tensor]] | None = None, sparse_as_dense: bool = False,
                         process_set: ProcessSet = global_process_set) -> torch.optim.Optimizer:
    """The optimizer, of a class that is made from its own, with step() taken by the gradients of all ranks: each is
    exchanged as soon as backward() has it, beside what is left of backward(). It goes on with the state, the options
    and the hooks of the one that is given, which is not to be used any longer.

    Args:
        named_parameters: such as model.named_parameters(): what the ranks know the gradients by; all of the
            optimizer's, or none. None: by their places in the optimizer.
        compression: in what gradients are exchanged, see Compression.
        backward_passes_per_step: so many are added up on this rank before they are exchanged.
        op: Average, Sum, Min, Max, Product; or Adasum, where each rank takes a step of its own and these are combined.
        gradient_predivide_factor: with Average: divide by it before the sum, and by the rest after it.
        num_groups: what `groups` was called.
        groups: gradients that are exchanged together: how many groups there are to be, or lists of parameters.
        sparse_as_dense: exchange sparse gradients as dense ones.
        process_set: the ranks that exchange gradients; others step by their own.
    Raises:
        ValueError, TypeError: names that are missing or not unique, and other arguments that make no sense.
    """
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"gradring: DistributedOptimizer of a {type(optimizer).__name__}; it takes an optimizer, such as "
                        "torch.optim.SGD")
    check_op(op)
    checked_compression(compression)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError(f"gradring: gradient_predivide_factor is for Average, not for {op}")
    if not isinstance(gradient_predivide_factor, Real) or not 0 < gradient_predivide_factor < math.inf:
        raise ValueError(f"gradring: gradient_predivide_factor is {gradient_predivide_factor!r}; it takes a number above 0")
    check_passes(backward_passes_per_step)
    if num_groups != 0:
        warnings.warn("num_groups has become groups", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    if isinstance(optimizer, Passes):
        raise ValueError("gradring: this optimizer is a DistributedOptimizer already: wrap the one that it was made of")
    pairs = named_pairs(optimizer, named_parameters)
    kind = AdasumSteps if op is Adasum and not _alone() else GradientSteps
    made = _of_class(optimizer, kind)
    made._begin(pairs, backward_passes_per_step, checked(process_set))
    if kind is AdasumSteps:
        made._begin_adasum(compression)
    else:
        made._begin_exchange(compression, op, gradient_predivide_factor, groups, sparse_as_dense)
    return made


def _alone():
    """And so it stays."""
    return size() == 1 and not world().elastic


def _of_class(optimizer, kind):
    """The same optimizer once more, with the methods of `kind` before its own."""
    own = type(optimizer)
    made = object.__new__(type(own.__name__, (kind, own), {"__module__": kind.__module__}))
    made.__dict__.update(optimizer.__dict__)
    made.__dict__.pop("step", None)  # a learning rate schedule's, around the other one's step
    return made


@untraced
class GradientSteps(Passes):
    """What DistributedOptimizer adds to an optimizer's class, but for Adasum."""

    def _begin_exchange(self, compression, op, predivide, groups, sparse_as_dense):
        self._compression = compression
        self._op = op
        self._factors = {"prescale_factor": 1 / predivide, "postscale_factor": predivide}
        self._sparse_as_dense = sparse_as_dense
        self._handles: dict[tuple, tuple[list[torch.Tensor], Handle]] = {}  # by groups: of which parameters
        self._given: dict[torch.Tensor, tuple[torch.Tensor, int]] = {}  # their gradients, and how often they had been written
        self._synchronized = False
        self._should_synchronize = True
        _check_groups(groups)
        self._exchanges = not _alone() and self._process_set.included()
        exchanged = self._trainable() if self._exchanges else []
        self._groups = [(parameter,) for parameter in exchanged] if groups is None else self._grouped(exchanged, groups)
        self._group_of = {parameter: group for group in self._groups for parameter in group}
        self._watch(exchanged)

    def _grouped(self, parameters, groups):
        if not parameters:
            return []
        # Whichever order the ranks have them in, the groups must be the same.
        named = {self._parameter_names[one]: one for one in parameters}
        parameters = [named[name] for name in self._order_of(named)]
        if isinstance(groups, int):
            share, more = divmod(len(parameters), groups)
            ends = [share * i + min(i, more) for i in range(groups + 1)]
            return [tuple(parameters[start:end]) for start, end in zip(ends, ends[1:]) if end > start]
        known = set(parameters)
        lists = [tuple(one for one in group if one in known) for group in groups]
        listed = {one for group in lists for one in group}
        return [group for group in lists if group] + [(one,) for one in parameters if one not in listed]

    def _order_of(self, named):
        if world().elastic:  # whoever comes late makes its optimizer while the others train: they would not take part
            return sorted(named)
        order = broadcast_object(list(named), self._process_set.ranks[0], "optimizer_groups", self._process_set)
        if named.keys() != set(order):
            raise ValueError(f"gradring: rank {self._process_set.ranks[0]} trains other parameters than this one: "
                             f"{', '.join(sorted(named.keys() ^ set(order))[:5])}")
        return order

    def _take_in_new(self):
        if self._exchanges:
            new = [(one,) for one in self._watch_new()]
            self._groups += new
            self._group_of |= {one: (one,) for (one,) in new}

    def _count(self, parameter):
        if self._left[parameter] == 0:
            self._given.pop(parameter, None)  # one pass too many, which is told at once
        super()._count(parameter)

    def _passed(self, parameter):
        """All of its backward passes are done."""
        group = self._group_of[parameter]
        if all(self._left[one] == 0 for one in group if one.requires_grad):
            self._start(group)

    def _start(self, group):
        # One that was frozen meanwhile has no gradient on any rank, and with zeros it would decay.
        trained = [one for one in group if one.requires_grad]
        if trained:
            self._handles[group] = trained, self._exchange(trained)
            self._given |= {one: (one.grad, one.grad._version) for one in trained}

    def _exchange(self, group) -> Handle:
        for one in group:
            if one.grad is None:  # another rank may have come by it
                one.grad = torch.zeros_like(one)
        name = self._parameter_names[group[0]]
        gradients = [one.grad for one in group]
        if len(group) == 1 and gradients[0].is_sparse and not self._sparse_as_dense:
            return MappedHandle(sparse_allreduce_async(gradients[0], name, self._op, self._process_set),
                                lambda result: [result])
        packed = Packed(self._compression, [one.to_dense() if one.is_sparse else one for one in gradients])
        handle = start_allreduce(packed.tensors, packed.tensors, self._op, name, **self._factors,
                                 process_set=self._process_set, wire=packed.wire)
        return MappedHandle(handle, packed.unpacked)

    def synchronize(self) -> None:
        """Waits until the gradients are those of all ranks. Parameters that backward() did not come by take part with
        zeros. Raises GradringError, and AssertionError where a gradient was changed meanwhile."""
        self._take_in_new()
        for group in self._groups:
            if group not in self._handles:
                self._start(group)
        changed = [one for one, (gradient, written) in self._given.items()
                   if one.grad is not gradient or gradient._version != written]  # before what comes of them is written
        try:
            for trained, handle in self._handles.values():
                for one, result in zip(trained, handle.wait(), strict=True):
                    if one.grad is not None:
                        _set(one, result)
        finally:
            self._start_anew()
        if changed:  # some of it may have been sent already, and some not
            raise AssertionError(f"the gradient of {self._parameter_names[changed[0]]} was changed {_MEANWHILE}")
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self):
        """In it, step() takes the gradients as they are: after synchronize(), and after what was to be done to them,
        such as clipping."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure=None) -> Any:
        """synchronize(), but for within skip_synchronize(), and the optimizer's own step. A closure may go backward:
        what it leaves is exchanged too, so all ranks must call it equally often."""
        if not self._should_synchronize:
            self._synchronized = False
            return super().step(closure)
        if self._synchronized:
            warnings.warn("optimizer.step() called without optimizer.skip_synchronize() after optimizer.synchronize(): "
                          "gradients are exchanged twice", stacklevel=2)
        self._take_in_new()  # before a closure goes backward
        if closure is None or self._under_way():
            self.synchronize()
        self._synchronized = False
        return super().step(closure and self._then_exchanged(closure))

    # torch wraps the steps of classes to time them and to call hooks; the optimizer's own is wrapped already.
    step.hooked = True

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Of the optimizer itself, for torch's GradScaler, which asks before it divides gradients; nothing tells of that."""
        if self._under_way():
            raise AssertionError(f"GradScaler.step() changes gradients {_MEANWHILE}")
        return self.__dict__.get("_step_supports_amp_scaling", False)

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, supports):
        self.__dict__["_step_supports_amp_scaling"] = supports

    def _then_exchanged(self, closure):
        def exchanged():
            loss = closure()
            if self._under_way():
                self.synchronize()
                self._synchronized = False
            return loss
        return exchanged

    def _start_anew(self):
        super()._start_anew()
        self._handles.clear()
        self._given.clear()

    def load_state_dict(self, state_dict):
        self._synchronized = False
        super().load_state_dict(state_dict)


def _set(parameter, result):
    if parameter.grad.is_sparse:
        result = result if result.is_sparse else result.to_sparse(parameter.grad.sparse_dim())
        parameter.grad = result.coalesce()
    elif result is not parameter.grad:
        parameter.grad.copy_(result)


def _check_groups(groups):
    if groups is None:
        return
    if isinstance(groups, int):
        if groups <= 0:
            raise ValueError(f"gradring: groups is {groups}; it must be 1 at least, or lists of parameters")
        return
    if not isinstance(groups, (list, tuple)) or not all(
            isinstance(one, torch.Tensor) for group in groups for one in group):
        raise ValueError("gradring: groups must be a number, or lists of parameters")
    listed = [id(one) for group in groups for one in group]
    if len(listed) != len(set(listed)):
        raise ValueError("gradring: a parameter is in two groups")
