"""How often the gradients of a step are copied."""

import math

import torch

# A copy that multiplies is one too: so DDP divides by the number of ranks.
COPIES = {"aten::copy_": 0, "aten::mul": 0, "aten::_foreach_copy_": 0}


def copies_a_byte(step, nbytes, job):
    """Between tensors, as torch's profiler sees them, and by gradring; for each byte of `nbytes` of gradients.

    Only tensors of 4 KiB and more count, so that what a step has of its own does not.
    """
    before = job.copied_bytes
    with torch.profiler.profile(record_shapes=True) as seen:
        step()
    moved = sum(4 * math.prod(event.input_shapes[0]) for event in seen.events()
                if event.name in COPIES and event.input_shapes and 4 * math.prod(event.input_shapes[0]) >= 4096)
    return {"torch": moved / nbytes, "gradring": (job.copied_bytes - before) / nbytes}
