"""allreduce of float32 by each way in turns, a size after the other. Rank 0 says the microseconds of each round."""

import torch
import torch.distributed as dist
from side import DEVICE, RANK, SIZE, TOLD, end, groups, meet, say, seconds, synchronize, take_turns

BUDGET = TOLD["budget"]  # bytes that a way sums in a round
MOST = TOLD["most"]  # ops in a round

meet()
ways = groups(TOLD["ways"])


def op(tensor, way):
    dist.all_reduce(tensor, group=ways[way])
    synchronize()


for size in TOLD["sizes"]:
    tensor = torch.empty(size // 4, device=DEVICE)
    for way in ways:
        tensor.fill_(RANK + 1)
        op(tensor, way)
        assert (tensor == SIZE * (SIZE + 1) / 2).all(), f"{way}: {size} B: {tensor}"
    tensor.zero_()
    times = min(max(BUDGET // size, 2), MOST)
    taken = {way: [] for way in ways}
    for way in take_turns(ways, TOLD["rounds"]):
        op(tensor, way)
        taken[way].append(1e6 * seconds(lambda: op(tensor, way), times))
    if RANK == 0:
        say(size=size, us=taken)
end()
