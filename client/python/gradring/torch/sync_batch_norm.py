"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

import torch
from torch.autograd import Function
from torch.nn.modules.batchnorm import _BatchNorm

from .. import exchange
from ..reduce_ops import Sum
from ..world import size
from .frontend import TENSORS


class SyncBatchNorm(_BatchNorm):
    """As torch.nn.BatchNorm1d to 3d, of input of shape (N, C, ...), with mean and variance of all ranks' input in
    training; N may differ among them. Takes tensors on the CPU. All ranks must go through the same layers in the same
    order, forward and backward. The gradients of weight and bias are this rank's, for the optimizer to average."""

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"gradring: SyncBatchNorm takes input of at least two dimensions, not {input.dim()}")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        own = not self.training and self.running_mean is not None
        if own or size() == 1:
            return super().forward(input)
        output, mean, variance, count = _SyncBatchNorm.apply(input, self.weight, self.bias, self.eps)
        if self.training and self.track_running_stats and count > 0:  # of nothing there is no mean
            self._remember(mean, variance * (count / (count - 1).clamp(min=1)))
        return output

    @torch.no_grad()
    def _remember(self, mean, variance):
        self.num_batches_tracked += 1
        share = self.momentum if self.momentum is not None else 1 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


class _SyncBatchNorm(Function):
    @staticmethod
    def forward(ctx, input, weight, bias, eps):
        wide = input.to(torch.promote_types(input.dtype, torch.float32))
        others = [0, *range(2, input.dim())]  # all dimensions but the channels
        mine = wide.numel() // input.shape[1]
        mean = wide.sum(others) / max(mine, 1)
        spread = (wide - _along(mean, input)).square().sum(others)
        told = torch.cat([mean, spread, mean.new_tensor([mine])]).unsqueeze(0)
        told = exchange.allgather(TENSORS, [told], equal=True, now=True).wait()[0]
        means, spreads, counts = told.split([input.shape[1], input.shape[1], 1], dim=1)
        count = counts.sum()
        mean = (means * counts).sum(0) / count
        variance = (spreads + counts * (means - mean).square()).sum(0) / count
        scale = torch.rsqrt(variance + eps)
        normal = (wide - _along(mean, input)) * _along(scale, input)
        ctx.save_for_backward(normal, weight, scale, count)
        ctx.mark_non_differentiable(mean, variance, count)
        if weight is None:
            return normal.to(input.dtype), mean, variance, count
        output = normal * _along(weight, input) + _along(bias, input)
        return output.to(input.dtype), mean, variance, count

    @staticmethod
    def backward(ctx, gradient, *_):
        normal, weight, scale, count = ctx.saved_tensors
        wide = gradient.to(normal.dtype)
        others = [0, *range(2, gradient.dim())]
        of_bias, of_weight = wide.sum(others), (wide * normal).sum(others)
        of_input = None
        if ctx.needs_input_grad[0]:
            sums = exchange.allreduce(TENSORS, [torch.stack([of_bias, of_weight])], op=Sum).wait()[0] / count
            of_input = wide - _along(sums[0], wide) - normal * _along(sums[1], wide)
            of_input = of_input * _along(scale if weight is None else scale * weight, wide)
            of_input = of_input.to(gradient.dtype)
        if weight is None:
            return of_input, None, None, None
        return of_input, of_weight.to(weight.dtype), of_bias.to(weight.dtype), None


def _along(channels, tensor):
    """One number a channel, as it is broadcast over the tensor."""
    return channels.view(1, -1, *[1] * (tensor.dim() - 2))
