"""A small GPT under the Trainer of transformers, and Accelerate by itself, on the backend gradring. Says what came of it. FOLDER"""

import hashlib
import sys

import gradring.torch  # noqa: F401  (makes the backend known)
import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import gather_object
from report import say
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

SAMPLES = 101  # not so many on each rank: the Trainer leaves out what it has twice


class Words(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        words = torch.arange(index, index + 16) % 50
        return {"input_ids": words, "labels": words}


dist.init_process_group("gradring")
torch.manual_seed(dist.get_rank())  # each begins elsewhere
model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0))
trainer = Trainer(model, TrainingArguments(
    sys.argv[1], use_cpu=True, max_steps=12, per_device_train_batch_size=4, gradient_accumulation_steps=2, learning_rate=0.01,
    eval_strategy="steps", eval_steps=6, save_steps=6, load_best_model_at_end=True, report_to=[], disable_tqdm=True,
    logging_strategy="no"),
    train_dataset=Words(), eval_dataset=Words())
trainer.remove_callback(PrinterCallback)
trainer.train()
weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
accelerator = Accelerator()
say(backend=type(dist.group.WORLD).__module__, size=trainer.args.world_size, steps=trainer.state.global_step,
    best=trainer.state.best_metric, predicted=len(trainer.predict(Words()).predictions),
    sum=accelerator.reduce(torch.tensor(accelerator.process_index + 1.0)).item(), ranks=gather_object([accelerator.process_index]),
    digest=hashlib.sha256(weights.numpy().tobytes()).hexdigest())
dist.destroy_process_group()
