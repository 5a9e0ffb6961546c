"""Questions about what is installed."""

import functools
import importlib.util
from typing import Sequence

from gradring import (ccl_built as ccl_built, ddl_built as ddl_built, gloo_built as gloo_built, mpi_built as mpi_built,
                      nccl_built as nccl_built)

_cache = functools.cache


@functools.cache
def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether there are gradring's names for the framework, and the framework."""
    return all(importlib.util.find_spec(name) is not None for name in (f"gradring.{ext_base_name}", ext_base_name))


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether ops take tensors on GPUs."""
    return False


def num_rank_is_power_2(num_rank: int) -> bool:
    return num_rank > 0 and num_rank.bit_count() == 1


def split_list(items: Sequence, count: int) -> list:
    """So many parts, of which the first have one more where they cannot be equal."""
    share, more = divmod(len(items), count)
    ends = [share * i + min(i, more) for i in range(count + 1)]
    return [items[start:end] for start, end in zip(ends, ends[1:])]


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    from packaging import version

    return version.parse(ver) >= version.parse(target)
