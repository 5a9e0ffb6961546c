"""Results are right: every type and operation, every size around the slices' edges, on every layout."""

from pathlib import Path

import pytest

# Below, at and above one slice (256K) and one page, and sizes that no number of ranks divides.
SIZES = ["--min", "4K", "--max", "4M", "--factor", "4"]
FEW_SIZES = ["--min", "13333", "--max", "266660", "--factor", "20"]  # the second just above one slice

LAYOUTS = [("single", 2), ("single", 4), ("quad", 1), ("quad", 2)]


@pytest.fixture(params=LAYOUTS, ids=[f"{name}-x-{per_node}" for name, per_node in LAYOUTS])
def layout(request):
    name, per_node = request.param
    return request.getfixturevalue(name), per_node


def check(layout, *words):
    cluster, per_node = layout
    job = cluster.launch("perf", ["gradring-perf", *words, "--check", "--iters", "1", "--warmup", "0"],
                         per_node=per_node)
    statuses = job.wait(90)
    assert statuses == [0] * len(job), job[0].says() + "".join(one.complains() for one in job)
    assert "# Wrong values: 0 OK" in job[0].says()


def test_allreduce_of_all_sizes(layout):
    check(layout, "allreduce", *SIZES)


def test_allreduce_of_all_types_and_operations(layout):
    check(layout, "allreduce", "--all", *FEW_SIZES)


def test_scaled_sums(layout):
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        for op in ("sum", "average", "max"):
            check(layout, "allreduce", "--scale", "0.25", "--dtype", dtype, "--op", op, *FEW_SIZES)
    check(layout, "reduce-scatter", "--scale", "2", *FEW_SIZES)
    check(layout, "reduce", "--scale", "2", "--wire", "bf16", "--min", "1M", "--max", "1M")


def test_broadcast(layout):
    check(layout, "broadcast", "--root", "1", *SIZES)


@pytest.mark.parametrize("layout", [("single", 4), ("quad", 2)], ids=["single-x-4", "quad-x-2"], indirect=True)
@pytest.mark.parametrize("collective", ["reduce", "allgather", "reduce-scatter", "gather", "scatter", "alltoall"])
def test_collectives_for_and_of_single_ranks(layout, collective):
    check(layout, collective, "--root", "1", "--min", "4", "--max", "4M", "--factor", "32")
    check(layout, collective, "--root", "0", "--dtype", "int8", "--op", "max", *FEW_SIZES)


@pytest.mark.parametrize("layout", [("single", 4), ("quad", 1), ("quad", 2)],
                         ids=["single-x-4", "quad-x-1", "quad-x-2"], indirect=True)
@pytest.mark.parametrize("collective", ["allgather", "reduce-scatter", "gather", "scatter", "alltoall"])
def test_uneven_blocks(layout, collective):
    check(layout, collective, "--uneven", "--root", "1", "--min", "4", "--max", "4M", "--factor", "32")
    check(layout, collective, "--uneven", "--dtype", "bfloat16", *FEW_SIZES)


def test_barrier(layout):
    cluster, per_node = layout
    job = cluster.launch("barrier", ["gradring-perf", "barrier", "--iters", "20"], per_node=per_node)
    assert job.wait(60) == [0] * len(job), job[0].says() + job[0].complains()


def test_a_thread_that_sends(make_cluster):
    ring = make_cluster(3, settings={"tcp-send-thread": "on"}).start()
    for collective in ("allreduce", "broadcast", "allgather", "alltoall"):
        check((ring, 2), collective, *SIZES)
    for node in ring.nodes:
        names = [task.read_text().strip() for task in Path(f"/proc/{node.daemon_pid()}/task").glob("*/comm")]
        assert "gr-send" in names


def test_checksums_and_the_comparison_of_results_raise_no_false_alarm(make_cluster):
    ring = make_cluster(3, settings={"checksum": "on", "verify": "on"}).start(), 2
    check(ring, "allreduce", *FEW_SIZES)
    check(ring, "broadcast", "--root", "5", *FEW_SIZES)
    check(ring, "allgather", *FEW_SIZES)
    check(ring, "reduce-scatter", *FEW_SIZES)
