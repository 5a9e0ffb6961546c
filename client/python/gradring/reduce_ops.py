"""How values of several ranks become one."""

from __future__ import annotations

from ._native import ReduceOp


class _Adasum:
    """Gradients that agree are averaged, those that have nothing to do with one another are added."""

    def __repr__(self):
        return "Adasum"


Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT
Adasum = _Adasum()


def chosen(op, average):
    """The op that the two arguments say; `average` is what Horovod had before `op`."""
    if average is not None:
        if op is not None:
            raise ValueError("say either op or average, not both")
        return Average if average else Sum
    return Average if op is None else op
