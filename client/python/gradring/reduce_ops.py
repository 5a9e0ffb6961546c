"""How values of several ranks become one, and as what they travel."""

from __future__ import annotations

from ._native import ReduceOp, Wire


class _Adasum:
    """Gradients that agree are averaged, those that have nothing to do with one another are added."""

    def __repr__(self):
        return "Adasum"

    def __reduce__(self):  # there is one
        return "Adasum"


Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT
Adasum = _Adasum()

_WIRES = {"native": Wire.NATIVE, "fp16": Wire.FLOAT16, "bf16": Wire.BFLOAT16, "int8": Wire.INT8}


def check_op(op) -> None:
    """Raises TypeError for what is none, such as a number of Horovod's, which would be another op here."""
    if not isinstance(op, (ReduceOp, _Adasum)):
        raise TypeError(f"gradring: op={op!r}; ops are gradring's Average, Sum, Min, Max, Product and Adasum")


def chosen(op, average):
    """The op that the two arguments say; `average` is what Horovod had before `op`. Raises TypeError and ValueError."""
    if isinstance(average, (ReduceOp, _Adasum, str)):
        raise TypeError(f"gradring: average={average!r}: an op is given as op=...")
    if average is not None:
        if op is not None:
            raise ValueError("say either op or average, not both")
        return Average if average else Sum
    return Average if op is None else op


def wire_of(wire: Wire | str) -> Wire:
    """What a call names, as a Wire or by its name as GRADRING_WIRE has it. Raises ValueError for what is none."""
    if isinstance(wire, Wire):
        return wire
    if wire not in _WIRES:
        raise ValueError(f"gradring: wire={wire!r}; it is one of {', '.join(_WIRES)}, or a gradring.Wire")
    return _WIRES[wire]
