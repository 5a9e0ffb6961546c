"""DeepSpeed's engine on the backend gradring, each stage of ZeRO after the other. Says what came of each. FOLDER"""

import hashlib
import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import gradring.torch  # noqa: F401  (makes the backend known)
import torch
import torch.distributed as dist
from report import say

deepspeed.init_distributed(dist_backend="gradring", auto_mpi_discovery=False)
for stage in range(4):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    config = {"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
              "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}},
              "zero_optimization": {"stage": stage}, "zero_force_ds_cpu_optimizer": False}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    torch.manual_seed(dist.get_rank())
    for _ in range(8):
        points = torch.randn(8, 8)
        loss = torch.nn.functional.mse_loss(engine(points), points.sum(1, keepdim=True))
        engine.backward(loss)
        engine.step()
    folder = f"{sys.argv[1]}/{stage}"
    engine.save_checkpoint(folder)
    engine.load_checkpoint(folder)
    with deepspeed.zero.GatheredParameters(list(engine.module.parameters()), enabled=stage == 3):
        weights = torch.nn.utils.parameters_to_vector(engine.module.parameters()).detach().clone()
    say(backend=type(dist.group.WORLD).__module__, size=dist.get_world_size(), stage=stage, weights=weights.tolist()[:4],
        digest=hashlib.sha256(weights.numpy().tobytes()).hexdigest())
dist.destroy_process_group()
