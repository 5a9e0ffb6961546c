"""Which samples are whose, where ranks come and go."""

from __future__ import annotations

import math
from typing import Iterator, Sized

import torch

from ..world import rank, size


class ElasticSampler(torch.utils.data.Sampler):
    """Shares out the samples of an epoch that nobody has processed among the ranks that are there.

    Tell it of each batch (`record_batch`), hand it to a TorchState, and call set_epoch() when an epoch is over, never
    before. When the ranks change, reset() shares out the rest of the epoch anew; what a rank has processed that is lost
    belongs to the rest. So an epoch is over behind the commit that follows its last batch, where all learn who is lost:
    who calls set_epoch() before that leaves out what was the share of such a rank.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0):
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_indices: set[int] = set()
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, of which nothing is processed."""
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """This rank has processed its batch of that number since the last reset."""
        self.record_indices(self.indices[batch_idx * batch_size:(batch_idx + 1) * batch_size])

    def record_indices(self, indices) -> None:
        self.processed_indices.update(indices)

    def state_dict(self) -> dict:
        return {"epoch": self.epoch, "processed_indices": set(self.processed_indices)}

    def load_state_dict(self, state: dict) -> None:
        self.epoch = state["epoch"]
        self.processed_indices = set(state["processed_indices"])
        self.reset()

    def reset(self) -> None:
        """Shares out what is left among the ranks that there are now, each as much; some samples may be given twice for
        that."""
        left = [index for index in range(len(self.dataset)) if index not in self.processed_indices]
        if self.shuffle:
            order = torch.randperm(len(left), generator=torch.Generator().manual_seed(self.seed + self.epoch)).tolist()
            left = [left[place] for place in order]
        self.num_replicas, self.rank = size(), rank()
        self.remaining_indices = left
        self.num_samples = math.ceil(len(left) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        if left:
            left = (left * math.ceil(self.total_size / len(left)))[:self.total_size]
        self.indices = left[self.rank::self.num_replicas]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
