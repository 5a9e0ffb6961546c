"""gradring.keras, by Horovod's other name of it."""

from ...keras import *  # noqa: F403
from ...keras import __all__ as _names
from . import callbacks

__all__ = [*_names, "callbacks"]
