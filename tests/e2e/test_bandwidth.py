"""What goes from node to node, as gradringctl tells while a job runs."""

from checks import TRAINER, wait_for_all

COUNT = 300_001


def test_rates_are_those_of_the_traffic(pair):
    job = pair.launch("busy", [TRAINER, "--ops", "100000", "--delay-ms", "5", "--count", str(COUNT)], per_node=1)
    wait_for_all(job, "done", 5)
    node = pair.nodes[0]
    before = node.ask("job", "busy")
    told = node.ask("bandwidth", "--seconds", "3")
    after = node.ask("job", "busy")
    assert told["healthy"] and {(one["from"], one["to"]) for one in told["lanes"]} == {("n0", "n1"), ("n1", "n0")}
    # Of two nodes each sends as many bytes as an op has. The ops were counted over a bit longer than the bytes.
    ops = after["ops_completed"] - before["ops_completed"]
    for lane in told["lanes"]:
        assert 0.6 < lane["sent_bytes_per_second"] * 3 / (ops * COUNT * 4) < 1.4, (told, ops)
    job.kill()
    status, text, _ = node.ctl("bandwidth", "--seconds", "0.5")
    assert status == 0 and "from \\ to" in text and "Gbit/s" in text


def test_who_asks_for_nonsense_is_told_so(single):
    for words in (["--seconds", "0"], ["--seconds", "nan"], ["--seconds"], ["now"], ["--minutes", "1"]):
        assert single.nodes[0].ctl("bandwidth", *words)[0] == 2, words
    status, text, _ = single.nodes[0].ctl("bandwidth", "--seconds", "0.5")
    assert status == 0 and "has no peers" in text
