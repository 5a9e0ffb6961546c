"""gradring.keras.callbacks, by Horovod's other name of it."""

from ...keras.callbacks import *  # noqa: F403
from ...keras.callbacks import __all__ as __all__
