"""The ops of torch.distributed and of Horovod's names on tensors of a GPU, against what they must give: the cases of
tests/python/test_devices.py, which need no pytest here."""

from rings import NODES_HOST, NODES_SUMS, Failed, Rings, ended

SECONDS = 150


def run(setting):
    rings_of_it = [NODES_SUMS] if setting.quick else [NODES_SUMS, NODES_HOST]
    with Rings(setting, rings_of_it) as rings:
        for name in rings_of_it:
            said = ended(rings.run_trainer("devices", setting.device, ranks=4, ring=name), SECONDS)
            right = [[one["right"] for one in rank] for rank in said]
            if not right[0] or any(one != right[0] for one in right):
                raise Failed(f"{name}: not all ranks came to the same end: {right}")
            print(f"{name}, 4 ranks: {', '.join(word.replace('_', ' ') for word in right[0])}: right")
            if name == NODES_SUMS:
                rings.tell_sums(name)
