"""gradring.keras, by Horovod's other name of it."""

from ... import keras as _keras
from ...keras import *  # noqa: F403
from . import callbacks

__all__ = ["callbacks"]
__all__ += _keras.__all__
