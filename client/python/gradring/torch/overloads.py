"""The forms in which torch's own process groups take the arguments of an op, beside lists and options."""

from __future__ import annotations

import torch

_FIELDS = {"op": "reduceOp", "root": "rootRank", "timeout": "timeout"}


def also_bare(options, *names):
    """For a method that takes lists of tensors, and `options`, as torch.distributed gives them. Lets it be given one tensor as it
    is, which DDP's join() does, and what options say one by one: by these names, in this order."""
    def of(method):
        lists = method.__code__.co_argcount - 2  # beside self and the options

        def op(self, *given, **named):
            if len(given) > lists and type(given[lists]) is options:
                return method(self, *given)
            tensors, values = given[:lists], given[lists:]
            if any(isinstance(one, torch.Tensor) for one in tensors):
                tensors = [[one] for one in tensors]
            opts = named.pop("opts", None)
            if opts is None:
                opts = options()
                for name, value in (dict(zip(names, values, strict=False)) | named).items():
                    if value is not None:
                        setattr(opts, _FIELDS[name], value)
            work = method(self, *tensors, opts)
            if (seconds := opts.timeout.total_seconds()) > 0:
                work.limit(seconds)
            return work
        return op
    return of
