"""An epoch of 64 samples, of whose four ranks the last is lost in it. Says what its share was, and what it processed of it."""

import os
import signal

import gradring
import torch
from gradring.torch.elastic import ElasticSampler, TorchState, run
from report import say

BATCH = 2
gradring.init(policy="elastic min=1")
sampler = ElasticSampler(range(64))
processed = []


@run
def train(state):
    say(share=list(sampler))
    for i in range(len(sampler) // BATCH):
        if gradring.size() == 4 and gradring.rank() == 3 and i == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        gradring.allreduce(torch.ones(1).numpy(), name="step")
        sampler.record_batch(i, BATCH)
        processed.extend(sampler.indices[i * BATCH:(i + 1) * BATCH])
        state.commit()


train(TorchState(sampler=sampler))
say(processed=processed)
