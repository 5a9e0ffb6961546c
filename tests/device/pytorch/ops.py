"""The ops of torch.distributed and of Horovod's names on tensors of a GPU, against what they must give: the cases of
tests/python/test_devices.py, which need no pytest here. With gpu-sums on tensors of gradring's pool as well."""

from rings import NODES_HOST, NODES_SUMS, Failed, Rings, ended

SECONDS = 150


def run(setting):
    rings_of_it = [NODES_SUMS] if setting.quick else [NODES_SUMS, NODES_HOST]
    ways = [(name, []) for name in rings_of_it]
    if setting.device == "cuda":
        ways.append((NODES_SUMS, ["pool"]))
    with Rings(setting, rings_of_it) as rings:
        for name, words in ways:
            said = ended(rings.run_trainer("devices", setting.device, *words, ranks=4, ring=name), SECONDS)
            right = [[one["right"] for one in rank] for rank in said]
            which = ", ".join([name, *words])
            if not right[0] or any(one != right[0] for one in right):
                raise Failed(f"{which}: not all ranks came to the same end: {right}")
            print(f"{which}, 4 ranks: {', '.join(word.replace('_', ' ') for word in right[0])}: right")
            if name == NODES_SUMS:
                rings.tell_sums(name)
