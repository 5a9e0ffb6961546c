"""What the tensors of an op have to be, and how a list of them is an op's blocks."""

from __future__ import annotations

import torch


def one_of(tensors, what):
    if len(tensors) != 1:
        raise ValueError(f"gradring: {what} takes one tensor of a rank, {len(tensors)} were given")
    return tensors[0]


def joined(parts):
    return torch.cat([one.reshape(-1) for one in parts])


def spread(whole, parts):
    """Lets the parts have the blocks, which lie one behind the other."""
    def finish():
        blocks = whole.reshape(-1).split([one.numel() for one in parts]) if whole is not None else ()
        for block, part in zip(blocks, parts):
            part.detach().copy_(block.view(part.shape))
    return finish


def stacked(whole, parts):
    """What a future has of them: one tensor where they are alike, as with NCCL, for which torch's hooks are written."""
    if whole.device != parts[0].device or any(one.shape != parts[0].shape for one in parts):
        return list(parts)
    return whole.view(len(parts), *parts[0].shape)


def sizes_of(what, parts, tensor, rank, size):
    """How an op is told of blocks of which `tensor` is this rank's."""
    counts = [one.numel() for one in parts]
    if len(parts) != size or counts[rank] != tensor.numel() or any(one.dtype != tensor.dtype for one in parts):
        raise ValueError(f"gradring: {what} needs one tensor of {tensor.dtype} for each of {size} ranks, that of rank {rank} with "
                         f"{tensor.numel()} elements")
    return {"count": counts[0]} if len(set(counts)) == 1 else {"count": 0, "counts": counts}


def rows_of_ranks(tensor, splits, size):
    """Elements of each rank's share, of rows as torch counts them."""
    rows = tensor.shape[0] if tensor.dim() else 0
    row = tensor.numel() // rows if rows else 0
    if not splits:
        if rows % size != 0:
            raise ValueError(f"gradring: {rows} rows cannot be shared among {size} ranks: give split sizes")
        splits = [rows // size] * size
    if len(splits) != size or sum(splits) != rows:
        raise ValueError(f"gradring: split sizes {list(splits)} for {rows} rows and {size} ranks")
    return [split * row for split in splits]


def check_equal(what, parts, tensor, size):
    if len(parts) != size or any(one.numel() != tensor.numel() or one.dtype != tensor.dtype for one in parts):
        raise ValueError(f"gradring: {what} needs one tensor for each of {size} ranks, all of {tensor.numel()} "
                         f"elements of {tensor.dtype}")


def check_lists(what, outputs, inputs, size):
    if len(outputs) != size or len(inputs) != size:
        raise ValueError(f"gradring: {what} among {size} ranks needs {size} outputs and {size} inputs, not {len(outputs)} and "
                         f"{len(inputs)}")


def check_times(what, large, small, size):
    if large.numel() != small.numel() * size or large.dtype != small.dtype:
        raise ValueError(f"gradring: {what} among {size} ranks needs {size} times {small.numel()} elements of "
                         f"{small.dtype}, not {large.numel()} of {large.dtype}")


def matched(told, size):
    """What each rank gives to each, of all ranks' such numbers and of those that they take. If they differ every rank hears of it."""
    given = [told[2 * size * i:][:size] for i in range(size)]
    for i, counts in enumerate(given):
        if counts != (taken := told[size + i::2 * size]):
            raise ValueError(f"gradring: all_to_all: rank {i} gives the ranks {counts} elements, and they take {taken}")
    return sum(given, [])
