"""Ray's TorchTrainer with two workers that meet in a process group of gradring's, and by Horovod's names. Says what each
found. FOLDER"""

import sys
from pathlib import Path

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def make_backend_known():
    import gradring.torch  # noqa: F401


def train(config):
    import hashlib
    import json

    import horovod.torch as hvd
    import ray.train
    import torch
    import torch.distributed as dist

    rank = ray.train.get_context().get_world_rank()
    torch.manual_seed(rank)  # each begins elsewhere, and has data of its own
    model = ray.train.torch.prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    told = {"digest": hashlib.sha256(weights.numpy().tobytes()).hexdigest(), "backend": type(dist.group.WORLD).__module__}
    dist.destroy_process_group()
    hvd.init()
    told |= {"rank": hvd.rank(), "size": hvd.size(), "sum": hvd.allreduce(torch.tensor(rank + 1.0), op=hvd.Sum).item()}
    hvd.shutdown()
    with open(f"{config['folder']}/{rank}.json", "w") as file:
        json.dump(told, file)


folder = Path(sys.argv[1])
folder.mkdir()
ray.init(num_cpus=2, include_dashboard=False, _temp_dir=str(folder),
         runtime_env={"worker_process_setup_hook": make_backend_known})
TorchTrainer(train, train_loop_config={"folder": str(folder)}, torch_config=TorchConfig(backend="gradring"),
             scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(storage_path=str(folder / "results"))).fit()
ray.shutdown()
for rank in range(2):
    print((folder / f"{rank}.json").read_text(), flush=True)
