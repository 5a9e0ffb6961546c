"""Steps of DDP whose backward pass takes longer than the exchange, by each way in turns and with no exchange. Rank 0 says the
milliseconds of all rounds so far, after each."""

import contextlib

import torch
import torch.distributed as dist
from side import DEVICE, ON_GPU, RANK, SIZE, TOLD, end, groups, meet, say, seconds, synchronize, take_turns
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS = TOLD["width"], TOLD["layers"]
LEAST, MOST = TOLD["rows"]
COPIES = 3  # of what a layer computes that its way back may need at a time
ROOM = 1.6  # backward pass : the longest exchange that is to fit into it
BACKWARD = 2 / 3  # of computing
ALONE = "alone"

meet()
ways = groups(TOLD["ways"])


def model(group):
    torch.manual_seed(0)
    layers = [part for _ in range(LAYERS) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    return DistributedDataParallel(torch.nn.Sequential(*layers).to(DEVICE), process_group=group,
                                   device_ids=[0] if ON_GPU else None, gradient_as_bucket_view=True)


models = {way: model(group) for way, group in ways.items()}
first = next(iter(models))


def step(way, data, exchange=True):
    one = models[way]
    with contextlib.nullcontext() if exchange else one.no_sync():
        one(data).sum().backward()
    synchronize()
    one.zero_grad()


def step_alone(data):
    step(first, data, exchange=False)


def exchange_takes(way, nbytes, times=3):
    """Seconds of the gradients alone, in pieces as large as DDP's buckets."""
    pieces = torch.zeros(nbytes // 4, device=DEVICE).split((25 << 20) // 4)

    def exchange():
        for work in [dist.all_reduce(piece, group=ways[way], async_op=True) for piece in pieces]:
            work.wait()
        synchronize()
    exchange()
    return seconds(exchange, times)


def agreed(value):
    """Rank 0's."""
    told = torch.tensor(float(value), dtype=torch.float64)
    dist.broadcast(told, 0)
    return float(told)


def most_rows():
    """That all ranks have room for on their GPU."""
    if not ON_GPU:
        return MOST
    free, _ = torch.cuda.mem_get_info()
    return int(min(MOST, free / 2 / SIZE / (WIDTH * 4 * 2 * LAYERS * COPIES)))


def fitting_rows(least_backward, rows=LEAST):
    """So many that the backward pass takes so many seconds."""
    most = agreed(most_rows())
    for _ in range(4):
        data = torch.randn(rows, WIDTH, device=DEVICE)
        step_alone(data)
        took = agreed(BACKWARD * seconds(lambda: step_alone(data), 2))
        rows = int(max(min(rows * least_backward / took, most, 16 * rows), LEAST))
    return rows


nbytes = sum(one.numel() * one.element_size() for one in models[first].parameters())
exchange = {way: exchange_takes(way, nbytes) for way in ways}
rows = fitting_rows(ROOM * agreed(max(exchange[way] for way in TOLD["fits"])))
data = torch.randn(rows, WIDTH, device=DEVICE)
for way in ways:
    for _ in range(2):  # buckets are rebuilt after the first step
        step(way, data)
taken = {way: [] for way in (ALONE, *ways)}
for way in take_turns(taken, TOLD["rounds"]):
    work = (lambda: step_alone(data)) if way == ALONE else (lambda: step(way, data))
    work()
    taken[way].append(1e3 * seconds(work, TOLD["steps"]))
    if RANK == 0 and len({len(rounds) for rounds in taken.values()}) == 1:
        say(bytes=nbytes, rows=rows, ms=taken, exchange={way: 1e3 * took for way, took in exchange.items()})
end()
