"""The errors of ops in graphs."""

from __future__ import annotations

import tensorflow as tf

from ..errors import GradringError, found_by
from ..raised_inside import behind, noted

__all__ = ["noted"]


def _found(error: Exception) -> GradringError | None:
    return behind(error.message) if isinstance(error, tf.errors.OpError) else None


found_by(_found)
