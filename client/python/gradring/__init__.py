"""Gradient exchange through the node's daemon, gradringd."""

from ._native import Cause, Code, Dtype, ReduceOp, Wire, version
from .errors import GradringError

__version__ = version()
__all__ = ["Cause", "Code", "Dtype", "GradringError", "ReduceOp", "Wire", "version"]
