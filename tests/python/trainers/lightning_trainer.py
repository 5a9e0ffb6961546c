"""A model under Lightning's Trainer, on two nodes, by DDP on the backend gradring. Says what came of it. FOLDER"""

import hashlib
import os
import sys
from pathlib import Path

import gradring.torch  # noqa: F401  (makes the backend known)
import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from report import say


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Linear(8, 1)

    def training_step(self, batch, _):
        return self._loss("loss", batch)

    def validation_step(self, batch, _):
        self._loss("validated", batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)

    def _loss(self, name, batch):
        points, goals = batch
        loss = torch.nn.functional.mse_loss(self.model(points), goals)
        self.log(name, loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss


def loader():
    points = torch.randn(256, 8, generator=torch.Generator().manual_seed(1))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(points, points.sum(1, keepdim=True)), batch_size=16)


folder = Path(sys.argv[1])
torch.manual_seed(int(os.environ["RANK"]))  # each begins elsewhere
trainer = lightning.Trainer(
    accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), num_nodes=2,
    strategy=DDPStrategy(process_group_backend="gradring"), max_epochs=4, default_root_dir=folder, logger=False,
    enable_progress_bar=False, enable_model_summary=False)
line = Line()
trainer.fit(line, loader(), loader())
weights = torch.nn.utils.parameters_to_vector(line.parameters()).detach()
trainer.save_checkpoint(folder / "end.ckpt")
say(backend=type(dist.group.WORLD).__module__, size=trainer.world_size, validated=float(trainer.callback_metrics["validated"]),
    digest=hashlib.sha256(weights.numpy().tobytes()).hexdigest(), saved=(folder / "end.ckpt").exists())
dist.destroy_process_group()
