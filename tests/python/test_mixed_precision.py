"""torch.amp on gradring: one rank's overflow is everybody's. And metrics and schedules."""

import pytest

pytest.importorskip("torch", reason="needs PyTorch")

WIRES = ["native", "fp16", "bf16", "int8"]
TRAINED = [*(f"float16 {wire}" for wire in WIRES), "bfloat16", "sharded"]


@pytest.fixture(scope="module")
def trained(ring):
    return [{one["way"]: one for one in said} for said in ring.run("mixed_precision")]


def alike(trained, way):
    """What all ranks said, once it was the same."""
    said = [one[way] for one in trained]
    assert all(one == said[0] for one in said), said
    return said[0]


@pytest.mark.parametrize("wire", WIRES)
def test_what_is_not_finite_stays_so_on_every_wire(trained, wire):
    said = alike(trained, f"survival {wire}")
    assert not said["first"] and said["second"] and said["blocks"], said
    assert said["bad"] == (512 if wire == "int8" else 2), said


@pytest.mark.parametrize("way", TRAINED)
def test_all_ranks_skip_the_step_in_which_one_overflows(trained, way):
    said = alike(trained, way)
    assert said["skipped"] == [False, False, True, False, False], said
    assert said["scales"] == [1024, 2048, 1024, 1024, 2048], said
    assert said["finite"], said


def test_metrics_are_averaged(trained):
    said = [one["helpers"] for one in trained]
    for rank, one in enumerate(said):
        assert one["metrics"] == {"loss": 1.5, "accuracy": 0.5}, one
        assert one["weighted"] == pytest.approx((1 + 4 + 9) / 6), one
        assert "rank 3" in one["refused"] and "of one" in one["refused"], one
        assert one["half"] == (0.5 if rank < 2 else 2.5), one


def test_a_warm_up_ends_at_the_number_of_ranks(trained):
    assert [one["helpers"]["warmup"] for one in trained] == [[1, 1.75, 2.5, 3.25, 4, 4]] * 4


def test_a_schedule_goes_on_after_the_warm_up():
    import torch
    from gradring.torch import schedules

    factor = schedules.warmup(2, 8, lambda step: 0.5 ** step)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    rates = []
    for _ in range(4):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates == pytest.approx([0.1, 0.45, 0.8, 0.4])
    assert schedules.warmup(0, 4)(0) == 4
    with pytest.raises(ValueError, match="does not know the number of ranks"):
        schedules.warmup(5)
