#!/usr/bin/env python3
"""The judge of tools/chaos finds each kind of lie, and excuses what the contract excuses and nothing else."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools/lib")]

from chaos.__main__ import options  # noqa: E402  (found by the line above)
from chaos.health import Standstill  # noqa: E402
from chaos.judge import Judge  # noqa: E402
from chaos.listener import Listener, Traffic  # noqa: E402
from chaos.records import Trainer  # noqa: E402
from chaos.schedule import EDGE_KINDS, KINDS, LONG_KINDS, PER_NODE, RESTART, Fault, kept_nodes, plan  # noqa: E402
from chaos.stopwatch import StopWatch  # noqa: E402
from chaos.totals import load  # noqa: E402

LIFE = "a1"


class Story(unittest.TestCase):
    """Ranks 0 and 1 on the first node, 2 and 3 on the second; all have joined, in epoch 1."""

    def setUp(self):
        self.judge, self.watch = Judge(), StopWatch()
        self.listener = Listener(self.judge, self.watch, Traffic(0.0))
        self.at = 1.0
        self.trainers = {rank: Trainer(f"r{rank}-{rank}", rank, 100 + rank, None, 0.0) for rank in range(4)}
        for rank in self.trainers:
            self.say(rank, "J 1")
            self.say(rank, "q 0 0")
            self.say(rank, "v 0 1 f -")
            self.say(rank, "p 0 0 1 1 1 0 f")
            self.say(rank, f"b {LIFE} 0 1 0 1 0")

    def say(self, rank, line):
        kind, rest = line.split(" ", 1)
        self.at += 0.001
        getattr(self.listener, f"_on_{kind}")(self.trainers[rank], self.at, rest)

    def submit(self, number, ranks=range(4)):
        for rank in ranks:
            self.say(rank, f"s {LIFE} {number}")

    def end(self, number, ranks=range(4), verdict=1, counts="4 4", epoch=1, digest="77", sets="f", cause=0, kind=0):
        for rank in ranks:
            self.say(rank, f"o {LIFE} {number} {kind} {verdict} {cause} {counts} {epoch} 1 {digest} {digest} {sets}")

    def views(self, epoch, mask, ranks):
        for rank in ranks:
            self.say(rank, f"v {LIFE} {epoch} {mask} somebody died")

    def judged(self):
        self.judge.settle(self.at, all_of_it=True)
        return self.judge.complaints

    def assert_found(self, words):
        complaints = self.judged()
        self.assertTrue(any(words in one for one in complaints), complaints)


class TheJudge(Story):
    def test_is_content_with_a_good_run(self):
        for number in range(3):
            self.submit(number)
            self.end(number)
        self.assertEqual(self.judged(), [])
        self.assertEqual((self.judge.ops, self.judge.verdicts), (3, 12))

    def test_finds_other_bits(self):
        self.submit(0)
        self.end(0, [0, 1, 2])
        self.end(0, [3], digest="78")
        self.assert_found("was told")

    def test_finds_another_verdict(self):
        self.submit(0)
        self.end(0, [0, 1, 2])
        self.end(0, [3], verdict=2)
        self.assert_found("was told")

    def test_finds_a_wrong_sum(self):
        self.submit(0)
        self.end(0, sets="wrong")
        self.assert_found("wrong bits")

    def test_finds_a_sum_with_somebody_who_did_not_submit(self):
        self.submit(0, [0, 1, 2])
        self.end(0, [0, 1, 2])
        self.assert_found("only 111 submitted")

    def test_finds_a_sum_without_somebody_who_was_told_success(self):
        self.submit(0)
        self.end(0, verdict=2, counts="3 3", sets="7")
        self.assert_found("rank 3 was told success")

    def test_finds_a_loss_that_was_told_as_ok(self):
        self.submit(0)
        self.end(0, [0, 1, 2], counts="3 3", sets="7")
        self.assert_found("which are no view")

    def test_believes_in_more_than_a_whole_view_if_they_were_there_until_then(self):
        self.views(2, "3", [0, 1])
        self.submit(0, [0, 1, 2])
        self.end(0, [0, 1], counts="3 3", sets="7", epoch=2)
        self.assertEqual(self.judged(), [])

    def test_finds_more_than_a_whole_view_with_somebody_who_was_gone_long_before(self):
        self.views(2, "7", [0, 1])
        self.views(3, "3", [0, 1])
        self.submit(0)
        self.end(0, [0, 1], counts="3 3", sets="b", epoch=3)
        self.assert_found("which are no view")

    def test_finds_a_count_that_is_not_that_of_the_sum(self):
        self.submit(0)
        self.end(0, counts="3 4")
        self.assert_found("contributions are told")

    def test_finds_a_gap(self):
        self.submit(0)
        self.submit(2, [1])
        self.assert_found("submits op 2 behind 0")

    def test_finds_two_views_of_one_epoch(self):
        self.views(2, "7", [0])
        self.views(2, "b", [1])
        self.assert_found("view 2 has the ranks")

    def test_finds_an_end_that_nothing_explains(self):
        self.say(2, f"x {LIFE} 5 5 7 3 7 1 a peer broke the rules")
        self.assert_found("no fault explains it")

    def test_believes_in_a_daemon_that_went_away_only_if_it_was_killed(self):
        self.judge.killed_daemons.add(1)
        self.judge.may_cost_node = self.at
        self.say(2, f"x {LIFE} 5 5 7 3 4 1 the daemon on node n1 went away")
        self.assertEqual(self.judged(), [])
        self.say(0, f"x {LIFE} 5 5 7 3 4 1 the daemon on node n0 went away")
        self.assert_found("no fault explains it")

    def test_finds_a_restart_that_cost_a_node_its_place(self):
        self.say(2, f"x {LIFE} 5 5 7 3 10 2 the job goes on without node n1")
        self.assert_found("no fault explains it")

    def test_finds_a_restart_that_ended_a_session(self):
        self.judge.may_cost_node = self.at  # a link was cut, elsewhere
        self.say(2, f"x {LIFE} 5 5 7 3 4 1 the daemon on node n1 went away and did not come back")
        self.assert_found("no fault explains it")

    def test_finds_a_restart_that_failed_an_op(self):
        self.submit(0)
        self.end(0, verdict=3, cause=4)
        self.assert_found("verdict 3")

    def test_believes_in_a_lost_place_as_long_as_a_fault_explains_it(self):
        self.judge.may_cost_node = self.at
        self.say(2, f"x {LIFE} 5 5 7 3 10 2 the job goes on without node n1")
        self.assertEqual(self.judged(), [])
        self.at += 100
        self.say(3, f"x {LIFE} 5 5 7 3 10 2 the job goes on without node n1")
        self.assert_found("no fault explains it")

    def test_excuses_a_node_that_was_left_out(self):
        self.views(2, "3", [0, 1])
        self.submit(0)
        self.end(0, [2, 3])
        self.end(0, [0, 1], verdict=2, counts="2 2", sets="3", epoch=2, digest="99")
        self.assertEqual(self.judged(), [])
        self.assertEqual(self.judge.excused, 2)

    def test_excuses_nobody_who_is_still_in_the_view(self):
        self.views(2, "7", [0, 1, 2])  # rank 3 is lost, its node is not
        self.submit(0)
        self.end(0, [3])
        self.end(0, [0, 1, 2], verdict=2, counts="3 3", sets="7", epoch=2, digest="99")
        self.assert_found("was told")

    def test_excuses_nobody_who_goes_on(self):
        self.views(2, "3", [0, 1])
        for number, digest in ((0, "99"), (1, "9a")):
            self.submit(number)
            self.end(number, [0, 1], verdict=2, counts="2 2", sets="3", epoch=2, digest=digest)
        self.end(0, [2])
        self.end(1, [2], epoch=2)
        self.assert_found("r2-2 (rank 2) was told")


class TheSchedule(unittest.TestCase):
    def test_is_the_same_for_the_same_seed(self):
        self.assertEqual(plan(7, "balanced", 60), plan(7, "balanced", 60))
        self.assertNotEqual(plan(7, "balanced", 60), plan(8, "balanced", 60))

    def test_has_enough_of_everything_in_twenty_minutes(self):
        for seed in range(20):
            faults = plan(seed, "balanced", 1200)
            for kind in KINDS:
                self.assertGreaterEqual(sum(1 for one in faults if one.kind == kind), 20, f"{kind}, seed {seed}")
        self.assertGreaterEqual(len(faults), 400)
        self.assertLessEqual(max(b.at - a.at for a, b in zip(faults, faults[1:])), 3.0)
        self.assertGreaterEqual(sum(1 for one in faults if one.follows), 100)

    def test_restarts_daemons_with_a_keeper_and_kills_others(self):
        for mode in ("balanced", "kills", "restarts"):
            kept = kept_nodes(5, mode)
            faults = plan(5, mode, 300)
            self.assertTrue({one.target for one in faults if one.kind == RESTART} <= set(kept))
            self.assertFalse({one.target for one in faults if one.kind == "kill-daemon"} & set(kept))
            self.assertGreaterEqual(sum(1 for one in faults if one.kind == RESTART), 10)
        self.assertFalse([one for one in plan(5, "restarts", 300) if one.kind in LONG_KINDS])

    def test_mends_ways_about_when_the_daemons_decide(self):
        faults = [one for one in plan(5, "edges", 1200) if one.kind in EDGE_KINDS]
        for kind in EDGE_KINDS:
            lasts = [one.lasts for one in faults if one.kind == kind]
            self.assertGreaterEqual(sum(1 for seconds in lasts if seconds < 3.0), 20, kind)
            self.assertGreaterEqual(sum(1 for seconds in lasts if seconds > 3.0), 10, kind)
        pairs = [one for one in faults if one.kind in ("cut-pair", "split")]
        self.assertFalse([one for one in pairs if one.other in (-1, one.target)])
        self.assertFalse([one for one in faults if one.ranks()], "who is lost then, nobody knows before")

    def test_leaves_a_node_alone_until_it_is_back(self):
        for mode in ("balanced", "restarts"):
            busy = {}
            for fault in plan(3, mode, 600):
                if fault.kind in (*LONG_KINDS, RESTART):
                    self.assertGreaterEqual(fault.at, busy.get(fault.target, 0.0))
                    busy[fault.target] = fault.at + fault.lasts
                    self.assertLess(fault.target, 4)
                self.assertLess(fault.target, 4 * PER_NODE)


class TheStopWatch(Story):
    def test_waits_for_the_last_of_those_that_are_left(self):
        fault = next(one for one in plan(1, "kills", 60) if one.kind == "kill-trainer" and one.target == 3)
        self.watch.fault(fault, self.at, list(self.trainers.values()))
        began = self.at
        self.views(2, "7", [0])
        self.submit(0)
        self.end(0, [0, 1], verdict=2, counts="3 3", sets="7", epoch=2)
        self.watch.collect(self.at)
        self.assertEqual(self.watch.times, {})
        self.at += 0.5
        self.end(0, [2], verdict=2, counts="3 3", sets="7", epoch=2)
        self.watch.collect(self.at)
        (seconds,) = self.watch.times["kill-trainer"]
        self.assertAlmostEqual(seconds, self.at - began)

    def test_of_a_restart_waits_until_all_are_told_of_the_next_epoch(self):
        self.watch.fault(Fault(1.0, RESTART, 1, -1, 2.0, False), self.at, list(self.trainers.values()))
        began = self.at
        self.views(2, "f", [0])
        self.submit(0)
        self.end(0, epoch=2)
        self.watch.collect(self.at)
        (seconds,) = self.watch.times[RESTART]
        self.assertAlmostEqual(seconds, self.at - began)


class TheStandstill(unittest.TestCase):
    def setUp(self):
        self.still = Standstill(10.0, 100.0)

    def test_is_no_news_while_ops_end(self):
        for now in range(101, 200):
            self.assertIsNone(self.still.look(now - 0.5, False, now))
        self.assertEqual(self.still.longest, 0.5)

    def test_is_found_although_nobody_waits_for_long(self):
        self.assertIsNone(self.still.look(101.0, False, 110.9))
        self.assertIn("no op ended anywhere for 10.1 s", self.still.look(101.0, False, 111.1))

    def test_counts_from_the_moment_when_nothing_is_stopped_or_cut(self):
        self.assertIsNone(self.still.look(101.0, True, 150.0))
        self.assertIsNone(self.still.look(101.0, False, 159.0))
        self.assertIsNotNone(self.still.look(101.0, False, 160.5))


class TheOptions(unittest.TestCase):
    def test_a_run_that_would_try_nothing_or_never_end_is_refused(self):
        for words in (["--minutes", "nan"], ["--minutes", "inf"], ["--minutes", "0"], ["--minutes=-1"], ["--elements", "0"]):
            with self.subTest(words), mock.patch("sys.argv", ["tools/chaos", *words]), \
                    contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as ended:
                options()
            self.assertEqual(ended.exception.code, 2)
            self.assertIn(words[0].partition("=")[0], said.getvalue())


class TotalsTest(unittest.TestCase):
    def test_are_not_added_to_a_file_of_something_else(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write('{"traceEvents": []}')
            file.flush()
            with self.assertRaisesRegex(SystemExit, "no totals of earlier runs"):
                load(file.name)
        self.assertGreater(len(load(ROOT / "docs/reliability/totals.json")["runs"]), 0)


if __name__ == "__main__":
    unittest.main()
