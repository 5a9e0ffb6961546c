"""Every command of gradringctl, as text and as JSON, asked at every node beside a job that runs.

The commands are those that `gradringctl --help` lists: one that has no line in CASES fails here.
"""

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from checks import TRAINER, wait_for_all
from schema import assert_fits

import cluster as testbed

ROOT = Path(__file__).resolve().parents[2]
JOB = "everything"


@dataclass(frozen=True)
class Case:
    """One way to ask: the words behind the command's name, {file} for a path, and a pattern in the text that it answers."""
    says: str
    words: tuple = ()
    schema: str = ""  # in tools/schema, where it is not called like the command
    asks_a_daemon: bool = True  # no: it also answers without one
    at_each_node: bool = True  # no: whoever is asked asks all of them anyway
    judges: bool = False  # what it finds of this machine and this moment is not what is tested here


TRACE = r"[1-9]\d* ops and [1-9]\d* slices of .* on 4 nodes"
# By command; in this order, as a trace is stopped after its start.
CASES = {
    "status": [Case(r"(?s)node n\d: ready, .*peers +3 of 3 up.*counter +value")],
    "peers": [Case(r"(?s)^node +address.*(n\d +[\d.:]+ +up .*){3}")],
    "jobs": [Case(rf"{JOB}.*running")],
    "job": [Case(r"(?s)rank.*pid.*where the time of a step goes", (JOB,))],
    "topology": [Case(r"(?s)NUMA node 0: .*n0 \[0-1\] -> n1 \[2-3\] -> n2 \[4-5\] -> n3 \[6-7\] -> n0"),
                 Case(r"NUMA node 0: ", ("--svg", "{file}"))],
    "flight-recorder": [Case(JOB, (JOB,)), Case("the last 5 of ", ("--last", "5"))],
    "bandwidth": [Case(r"(?s)from \\ to .*n0 +n1 .*Gbit/s", ("--seconds", "0.5")),
                  Case(r"(?s)Gbit/s.*n3", ("--matrix", "--force", "--seconds", "0.2", "--svg", "{file}"), schema="bandwidth-matrix",
                       at_each_node=False, judges=True),
                  Case(r"(?s)us.*n3", ("--latency", "--force", "--seconds", "0.2"), schema="bandwidth-matrix", at_each_node=False,
                       judges=True)],
    # Start and stop are asked twice: then one is on already, or none.
    "trace": [Case("tracing on 4 nodes", ("start",), at_each_node=False, judges=True),
              Case(TRACE, ("dump", "-o", "{file}"), at_each_node=False),
              Case(TRACE, ("stop", "-o", "{file}"), at_each_node=False, judges=True)],
    "top": [Case(rf"(?s)exposed.*{JOB} .*link to", ("--once",))],
    "doctor": [Case(r"(?s)(OK|WARN|FAIL) .*peers", ("--seconds", "0.5"), asks_a_daemon=False, at_each_node=False, judges=True)],
    "events": [Case(r"(?s)time +age.*job formed.*" + JOB, ("--all",))],
    "set": [Case(rf"(?s)weight +before.*{JOB} +3", (JOB, "weight=3"), at_each_node=False)],
    "support-bundle": [Case(r"answer.tar.gz", ("-o", "{file}.tar.gz"), asks_a_daemon=False, at_each_node=False, judges=True)],
    "keygen": [Case(r"the secret key", ("--out", "{folder}", "--name", "somebody"), asks_a_daemon=False)],
}


# It ends a daemon, and so has a file of its own.
ELSEWHERE = {"drain": "test_drain.py"}


def commands_of_help(text):
    """Names of the table of commands: it begins after its head and ends at an empty line."""
    return re.findall(r"(?m)^  ([a-z][a-z-]*)", text.split("\nCommands\n", 1)[1].split("\n\n", 1)[0])


def every_case():
    return [pytest.param(command, case, id=" ".join((command, *case.words))) for command, cases in CASES.items()
            for case in cases]


@pytest.fixture(scope="module")
def busy(programs):
    """Four nodes with two trainers each, in the middle of a job. Small traces: they are read whole, whatever is in them."""
    ring = testbed.Cluster(programs, 4, testbed.best_network()[0], settings={"trace-size": "1M"}).start()
    job = ring.launch(JOB, [TRAINER, "--ops", "1000000", "--delay-ms", "30", "--count", "50001"], per_node=2)
    wait_for_all(job, "done", 20)
    for node in ring.nodes:
        testbed.wait_until(lambda n=node: "still being looked at" not in n.ask("topology")["nodes"][0]["machine"]["fault"], 30,
                   f"{node.name} has looked at its machine")
    yield ring
    ended = [trainer.name for trainer in job if not trainer.running()]
    complaints = ring.close()
    assert not ended, f"no question ends a job, but {ended} ended"
    assert not complaints, "\n".join(complaints)


def asked(node, command, case, folder, *flags):
    """The answer, as text; the file that was asked for has something in it."""
    folder.mkdir()
    file = folder / "answer"
    words = [word.format(file=file, folder=folder) for word in case.words]
    status, said, complaint = node.ctl(*flags, command, *words, seconds=60)
    as_it_is = case.judges and status in (0, 1)
    assert as_it_is or (status, complaint) == (0, ""), (command, words, status, said, complaint)
    assert "{file}" not in case.words or file.stat().st_size > 100
    return said


def test_each_command_has_a_case(busy):
    status, text, _ = busy.nodes[0].ctl("--help")
    assert status == 0
    known = commands_of_help(text)
    assert len(known) >= 9, text
    assert sorted(known) == sorted([*CASES, *ELSEWHERE]), "a command without a case, or a case without a command"
    page = (ROOT / "docs/operate.md").read_text()
    assert [name for name in known if f"gradringctl {name}" not in page] == [], "README.md says that all are there"


@pytest.mark.parametrize("command, case", every_case())
def test_answers_as_text_and_as_its_schema_says(busy, command, case, tmp_path):
    nodes = busy.nodes if case.at_each_node else busy.nodes[:1]
    for node in nodes:
        said = asked(node, command, case, tmp_path / f"{node.name}-text")
        assert re.search(case.says, said), said
        assert "\x1b" not in said, "colour is for terminals"
    for node in nodes:
        document = json.loads(asked(node, command, case, tmp_path / f"{node.name}-json", "--json"))
        assert_fits(case.schema or command, document)
        assert case.judges or document["healthy"] and document["problems"] == []


@pytest.mark.parametrize("command", CASES)
def test_refuses_what_it_does_not_know(busy, command):
    for flags in ((), ("--json",)):
        status, said, complaint = busy.nodes[0].ctl(*flags, command, *CASES[command][0].words, "--nonsense")
        assert (status, said) == (2, "") and complaint.startswith(f"gradringctl {command}: "), (status, said, complaint)


@pytest.mark.parametrize("command, case", [one for one in every_case() if one.values[1].asks_a_daemon])
def test_says_which_daemon_cannot_be_reached(busy, command, case, tmp_path):
    words = [word.format(file=tmp_path / "answer") for word in case.words]
    done = subprocess.run([busy.program("gradringctl"), "--runtime-dir", tmp_path, command, *words], capture_output=True,
                          text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (3, "") and str(tmp_path) in done.stderr, done


def test_an_answer_that_is_not_as_its_schema_says_is_found():
    good = {"schema_version": 1, "tracing": True, "nodes": ["n0"], "healthy": True, "problems": []}
    assert_fits("trace", good)
    for wrong in ({**good, "more": 1}, {**good, "nodes": [7]}, {**good, "nodes": "n0"}, {**good, "schema_version": 2},
                  {name: value for name, value in good.items() if name != "healthy"}):
        with pytest.raises(AssertionError):
            assert_fits("trace", wrong)
