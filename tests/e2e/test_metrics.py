"""What Prometheus gets of a running job: every query of the dashboard, every rule and alert, every name."""

import functools
import json
import re
import signal
import subprocess

import pytest
from checks import TRAINER, run_job, wait_for_all
from cluster import Cluster, Loopback, wait_until
from monitor import ROOT, RULES, Monitored, dashboard, parse, why_no_prometheus

# Longer than the test asks questions; it kills them.
STEPS = [TRAINER, "--ops", "100000", "--delay-ms", "5", "--count", "300001", "--keep-going"]
PATIENCE = 90


@pytest.fixture(scope="module")
def watched(programs):
    """Two daemons, a job of two ranks on each, and a Prometheus that has seen some seconds of it."""
    reason = why_no_prometheus()
    if reason:
        pytest.skip(reason)
    ring = Cluster(programs, 2, Loopback)
    try:
        monitored = Monitored(ring)
        monitored.job = ring.launch("train", STEPS, per_node=2)
        wait_for_all(monitored.job, "done", 2)
        monitored.wait_for('rate(gradring_ops_total{job="train", outcome="ok"}[10s]) > 0', PATIENCE)
        monitored.wait_for("job:gradring_bus_bandwidth_bytes_per_second:rate1m > 0", PATIENCE)
    except BaseException:
        ring.close()
        raise
    yield monitored
    complaints = ring.close()
    assert not complaints, "\n".join(complaints)


def documented():
    """{family: (type, labels)} of docs/metrics.md."""
    rows = re.findall(r"(?m)^\| `(gradring_\w+)` \| (\w+) \|([^|]*)\|", (ROOT / "docs/metrics.md").read_text())
    return {name: (kind, {label.strip() for label in labels.split(",") if label.strip()}) for name, kind, labels in rows}


def alerts():
    text = (RULES / "alerts.yml").read_text()
    return dict(re.findall(r"- alert: (\w+)\n\s+expr: >?\s*((?:.|\n)*?)\n\s+(?:for|labels):", text))


# ---- in health ----

def test_every_query_of_the_dashboard_has_data(watched):
    queries = dashboard.queries()
    assert len(queries) > 30
    for title, expression in queries:
        watched.wait_for(dashboard.substitute(expression), 30, f"panel '{title}' has data: {expression}")


def test_the_dashboard_can_be_narrowed_to_a_node_and_a_job(watched):
    for title, expression in dashboard.queries():
        found = watched.api.query(dashboard.substitute(expression, node="n1", job="train"))
        nodes = {series["metric"].get("node", "n1") for series in found}
        jobs = {series["metric"].get("job", "train") for series in found}
        # What is of no training job has the job of the scrape.
        assert nodes <= {"n1"} and jobs <= {"train", "gradring"}, (title, found)
        nobody = watched.api.query(dashboard.substitute(expression, node="nobody", job="nothing"))
        assert all(float(series["value"][1]) == 0 for series in nobody), (title, nobody)


def test_what_a_job_reaches_is_not_that_of_a_part_of_its_nodes(watched):
    now = watched.api.now()
    for panel in ("Bus bandwidth", "Bus bandwidth by job", "Ops by job"):
        expression = next(expr for title, expr in dashboard.queries() if title == panel)
        whole, narrowed = ({tuple(sorted(series["metric"].items())): series["value"][1] for series in
                            watched.api.query(dashboard.substitute(expression, node=node), at=now)} for node in (".*", "n1"))
        assert whole == narrowed, (panel, whole, narrowed)


def test_alerts_are_silent_in_health(watched):
    found = alerts()
    assert len(found) == (RULES / "alerts.yml").read_text().count("- alert:")
    for name, expression in found.items():
        assert watched.api.query(expression) == [], name


def test_prometheus_takes_the_rules(watched):
    groups = watched.api.get("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len(alerts()) + (RULES / "recording.yml").read_text().count("- record:")
    wait_until(lambda: all(rule["health"] != "unknown" for group in watched.api.get("rules")["groups"]
                           for rule in group["rules"]), 30, "every rule was evaluated")
    bad = [rule for group in watched.api.get("rules")["groups"] for rule in group["rules"] if rule["health"] != "ok"]
    assert not bad, bad


def test_every_family_is_documented_and_every_documented_one_is_there(watched):
    families = parse(watched.page())
    strangers = {name for name in families if not name.startswith(("gradring_", "exposer_"))}
    assert not strangers, f"names that docs/metrics.md does not speak of: {strangers}"
    ours = {name: kind for name, (kind, _) in families.items() if name.startswith("gradring_")}
    assert {name: kind for name, (kind, _) in documented().items()} == ours


def test_labels_are_those_that_are_documented(watched):
    for name, (_, labels) in parse(watched.page()).items():
        if name.startswith("gradring_") and labels:
            assert labels == documented()[name][1] | {"node"}, name


def test_nobody_measures_the_way_to_a_daemon_of_the_same_machine(watched):
    wait_until(lambda: re.search(r"gradring_lane_sent_bytes_total{.*} [1-9]", watched.page()), 30, "slices go")
    assert "gradring_lane_path_bytes_per_second{" not in watched.page()


def test_a_probe_and_what_holds_small_frames_together_are_no_gradients(watched):
    _, out, said = watched.cluster.nodes[0].ctl("bandwidth", "--matrix", "--force", "--seconds", "0.2")
    assert "worst: n" in out, (out, said)
    page = watched.page()
    for way in ("sent", "received"):
        all_peers = re.search(rf"gradring_payload_{way}_bytes_total{{.*}} (\S+)", page)
        lanes = re.findall(rf"gradring_lane_{way}_bytes_total{{.*}} (\S+)", page)
        assert float(all_peers[1]) == sum(map(float, lanes)) > 0, way


def test_every_alert_says_what_to_do_and_has_a_test(watched):
    told = (ROOT / "docs/metrics.md").read_text()
    tested = (RULES / "alerts_test.yml").read_text()
    for name in alerts():
        assert f"`{name}`" in told, f"docs/metrics.md does not say what to do about {name}"
        assert re.search(rf"alertname: {name}\n\s+exp_alerts:", tested), f"alerts_test.yml has no case in which {name} fires"


def test_figures_are_true(watched):
    """What Prometheus counts of a job is what the trainers and gradringctl count."""
    api = watched.api
    assert {series["metric"]["node"]: series["value"][1] for series in api.query('gradring_job_ranks{job="train"}')} == {
        "n0": "4", "n1": "4"}
    ranks = {series["metric"]["rank"] for series in api.query('gradring_rank_submissions_total{job="train"}')}
    assert ranks == {"0", "1", "2", "3"}
    counted = int(api.query('sum(gradring_rank_submissions_total{job="train", rank="0"})')[0]["value"][1])
    shown = {rank["rank"]: rank["ops_submitted"] for rank in watched.cluster.nodes[0].ask("job", "train")["ranks"]}
    assert 0 < counted <= shown[0]
    # Each op of 300,001 float32, of two ranks here; the page is of one moment.
    page = watched.page()
    number = lambda pattern: float(re.search(pattern, page)[1])  # noqa: E731
    ops = number(r'gradring_ops_total\{.*collective="allreduce",outcome="ok"\} (\S+)')
    assert number(r'gradring_op_bytes_total\{.*collective="allreduce"\} (\S+)') == pytest.approx(ops * 300_001 * 4, rel=1e-3)
    assert number(r'gradring_op_duration_seconds_count\{.*size="16MiB"\} (\S+)') == ops
    assert number(r"gradring_loop_busy_seconds_total\{.*thread=\"data\"\} (\S+)") > 0
    assert number(r"gradring_snapshot_age_seconds\{.*\} (\S+)") < PATIENCE


# ---- and in trouble: the last of this file, since the job does not outlive it ----

def test_the_death_of_a_trainer_raises_alerts(watched):
    # Between two ops it would take none with it: it dies while the others wait for it.
    watched.job[3].signal(signal.SIGSTOP)
    node = watched.cluster.nodes[0]
    wait_until(lambda: [op for op in node.ask("job", "train")["ops"] if any(who.get("rank") == 3 for who in op["waiting_for"])],
               PATIENCE, "the others wait for rank 3")
    watched.job[3].kill()
    for name in ("GradringTrainerDied", "GradringJobFailed"):
        watched.wait_for(f'ALERTS{{alertname="{name}", alertstate="firing", node="n1"}}', PATIENCE)
    failed = watched.wait_for('sum by (job) (gradring_ops_total{job="train", outcome="failed"}) > 0', PATIENCE)
    assert failed[0]["metric"]["job"] == "train"
    causes = {series["metric"]["cause"] for series in watched.api.query("gradring_client_deaths_total > 0")}
    assert causes == {"killed"}
    watched.job.kill()


def test_a_rank_that_is_lost_is_quiet_no_more_and_counts_on_when_it_comes_back(watched):
    command = [*STEPS, "--policy", "elastic", "--join-every", "5"]
    job = watched.cluster.launch("shrinks", command, per_node=2)
    node = watched.cluster.nodes[1]

    def quiet():
        return re.findall(r'gradring_rank_quiet_seconds{.*job="shrinks",rank="(\d)"}', watched.page(1))

    def counted():
        return int(re.search(r'gradring_rank_submissions_total{.*job="shrinks",rank="2"} (\d+)', watched.page(1))[1])
    wait_until(lambda: quiet() == ["2", "3"] and counted() > 50, PATIENCE, "both ranks of n1 have submitted")
    job[2].kill()
    wait_until(lambda: quiet() == ["3"], PATIENCE, "rank 2 has no time of quiet any more")
    behind = next(dashboard.substitute(expr, job="shrinks") for title, expr in dashboard.queries() if "Behind the foremost" in title)
    wait_until(lambda: {series["metric"]["rank"] for series in watched.api.query(behind)} == {"0", "1", "3"}, PATIENCE,
               "the dashboard has it behind nobody")
    before = counted()
    assert before > 50, "what it has counted stays"
    again = watched.cluster.start_trainer("shrinks", command, node, 2, 4)
    wait_until(lambda: quiet() == ["2", "3"], PATIENCE, "rank 2 is back")
    assert counted() > before, "no counter goes backwards"
    states = {rank["rank"]: rank["state"] for rank in node.ask("job", "shrinks")["ranks"]}
    assert states[2] in ("training", "waiting"), "it is another process"
    formed = [one["text"] for one in node.ask("events")["events"] if one["event"] == "job formed" and "shrinks" in one["text"]]
    assert len(formed) == 1, formed
    again.kill()
    job.kill()


def test_an_elastic_job_that_goes_on_without_a_node_has_not_failed(watched):
    node = watched.cluster.nodes[1]

    def failures():
        return sum(int(count) for count in re.findall(r"(?m)^gradring_job_failures_total{.*} (\d+)$", watched.page(1)))
    before = failures()
    command = [*STEPS, "--policy", "elastic", "--join-every", "5"]
    job = watched.cluster.launch("goes-on", command, of_rank={1: ["--at", "7", "--act", "leave"]})
    told = wait_until(lambda: [one for one in node.ask("events")["events"] if "goes-on" in one["text"] and one["event"] != "job formed"],
                      PATIENCE, "n1 tells that its part is over")
    assert [one["event"] for one in told] == ["job ended"] and "has ended on this node" in told[0]["text"], told
    wait_until(lambda: 'gradring_job_epoch{node="n1",job="goes-on"}' not in watched.page(1), PATIENCE, "n1 is rid of it")
    assert failures() == before and job[0].running()
    job.kill()


def test_the_loss_of_a_peer_raises_alerts(watched):
    watched.cluster.nodes[1].daemon.kill()
    watched.wait_for('ALERTS{alertname="GradringPeerLost", alertstate="firing", node="n0", peer="n1"}', PATIENCE)
    watched.wait_for('ALERTS{alertname="GradringDown", alertstate="firing"}', PATIENCE)
    watched.wait_for('gradring_peer_losses_total{node="n0", peer="n1", cause="peer lost"} == 1', PATIENCE)


# ---- a network of its own ----

READ = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:7390/metrics', timeout=20).read().decode())"
SLOWER = 3  # as GradringLaneSlow says; the link is five times slower, and its queue fills


def test_a_slow_lane_stands_out(make_cluster, namespaces):
    ring = make_cluster(2, network=functools.partial(namespaces, cards=2), settings={"metrics": "127.0.0.1:7390"})
    ring.network.shape("500mbit")
    for node in (0, 1):
        ring.network.inside(node, "tc", "qdisc", "change", "dev", "eth1", "root", "tbf", "rate", "100mbit", "burst", "64kb",
                            "latency", "50ms")
    ring.start()
    run_job(ring, "uneven", "--ops", "4", "--count", "4000000", seconds=120)

    def means():
        page = ring.network.inside(0, "python3", "-c", READ)
        took, sends = ({lane: float(value) for lane, value in re.findall(
            rf'gradring_lane_{what}_total\{{.*lane="(\d)"\}} (\S+)', page)} for what in ("send_seconds", "sends"))
        return all(sends.get(lane) for lane in "01") and {lane: took[lane] / sends[lane] for lane in "01"}
    mean = wait_until(means, PATIENCE, "both lanes have sent")
    assert mean["1"] > SLOWER * mean["0"], mean


# ---- without a daemon ----

def test_each_alert_fires_when_it_should():
    reason = why_no_prometheus()
    if reason:
        pytest.skip(reason)
    for words in (["check", "rules", "recording.yml", "alerts.yml"], ["check", "config", "prometheus.yml"],
                  ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(["promtool", *words], cwd=RULES, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_nobody_is_behind_for_good_whose_daemon_was_restarted(tmp_path):
    reason = why_no_prometheus()
    if reason:
        pytest.skip(reason)
    # By job and rank: of `train` rank 1's daemon counts from 0 again, and of `stuck` rank 1 submits no more.
    counts = {("train", 0): "50000+100x240", ("train", 1): "50000+100x20 0+100x219",
              ("stuck", 0): "0+10x170 1703x70", ("stuck", 1): "0+10x170 1700x70"}
    series = [(f'{{node="n{rank}", job="{job}", rank="{rank}"}}', values) for (job, rank), values in counts.items()]
    behind = next(dashboard.substitute(expr) for title, expr in dashboard.queries() if "Behind the foremost" in title)
    told = {"expr": f"({behind}) > bool 2", "eval_time": "15m",
            "exp_samples": [{"labels": labels, "value": int('job="stuck", rank="1"' in labels)} for labels, _ in series]}
    test = {"interval": "5s", "promql_expr_test": [told], "input_series": [
        {"series": f"gradring_rank_{what}{labels}", "values": numbers} for labels, values in series
        for what, numbers in (("submissions_total", values), ("quiet_seconds", "0x240"))]}
    file = tmp_path / "behind.json"  # which is YAML as well
    file.write_text(json.dumps({"rule_files": [], "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_asks_for_nothing_that_is_not_there():
    for title, expression in [*dashboard.queries(), *alerts().items()]:
        for name in re.findall(r"(?<!:)\b(gradring_\w+)", expression):
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            assert base in documented() or "gradring_lane_send_seconds:mean1m" in expression, f"{title}: {name}"
