// What gradringctl prints of a report, for people and for scripts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/expect_sound.h"
#include "tools/ctl/command.h"
#include "tools/ctl/waits.h"

namespace gradring::tools {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

wire::StatusReport healthy_daemon() {
  wire::StatusReport report;
  report.set_node("a");
  report.set_pid(4242);
  report.set_version("0.1.0");
  report.set_uptime_ms(7'260'000);
  report.set_state("ready");
  report.set_runtime_dir("/run/gradring");
  report.set_listen("10.0.0.1:7777");
  report.set_secure(true);
  report.set_transport("ucx 1.13.1");
  report.set_devices("eth0");
  report.set_devices_reason("carries the listen address 10.0.0.1");
  report.set_rss_bytes(31 << 20);
  report.set_cpu_seconds(1.25);
  report.set_sessions(2);
  report.set_jobs(1);
  report.set_peers_up(1);
  report.set_peers_configured(1);
  auto* limit = report.add_limits();
  limit->set_name("segment-limit");
  limit->set_used(32 << 20);
  limit->set_cap(uint64_t{8} << 30);
  limit->set_unit("bytes");
  auto* counter = report.add_counters();
  counter->set_name("frames_dropped");
  counter->set_value(3);
  return report;
}

TEST(ShowStatus, TellsTheDaemon) {
  const auto answer = show(healthy_daemon(), Style{});
  expect_sound(answer, "status");
  EXPECT_THAT(answer.problems, IsEmpty());
  EXPECT_THAT(answer.text, HasSubstr("node a: ready, pid 4242, gradringd 0.1.0, up 2 h 1 min"));
  EXPECT_THAT(answer.text, HasSubstr("eth0 (carries the listen address 10.0.0.1)"));
  EXPECT_THAT(answer.text, HasSubstr("segment-limit  32.0 MiB  8.0 GiB"));
  EXPECT_EQ(answer.json["limits"][0]["used"], 32 << 20);
  EXPECT_EQ(answer.json["counters"]["frames_dropped"], 3);
  EXPECT_EQ(answer.json["uptime_seconds"], 7260.0);
}

TEST(ShowStatus, NamesWhatIsWrong) {
  auto report = healthy_daemon();
  report.set_state("draining");
  report.set_peers_configured(3);
  report.mutable_limits(0)->set_used(uint64_t{8} << 30);
  const auto answer = show(report, Style{});
  expect_sound(answer, "status");
  EXPECT_THAT(answer.problems,
              ElementsAre("the daemon is draining", HasSubstr("2 of 3 peers are not up"),
                          "segment-limit is at its cap of 8.0 GiB"));
  EXPECT_EQ(document_of(answer)["healthy"], false);
}

TEST(ShowStatus, FindsNothingWrongWithPeersThatWereStopped) {
  auto report = healthy_daemon();
  report.set_peers_configured(3);
  report.set_peers_stopped(2);
  const auto answer = show(report, Style{});
  expect_sound(answer, "status");
  EXPECT_THAT(answer.problems, IsEmpty());
  EXPECT_THAT(answer.text, HasSubstr("1 of 3 up, 2 stopped"));
}

TEST(ShowStatus, ColoursOnlyWhenAsked) {
  EXPECT_THAT(show(healthy_daemon(), Style{true}).text, HasSubstr("\x1b[32mready\x1b[0m"));
}

TEST(ShowPeers, TellsWhyOneIsNotUp) {
  wire::PeersReport report;
  auto* up = report.add_peers();
  up->set_node("b");
  up->set_address("10.0.0.2:7777");
  up->set_state("up");
  up->set_version("0.1.0");
  up->set_connected_ms(65'000);
  up->set_sent_bytes(3 << 20);
  up->set_damaged(2);
  for (const char* device : {"eth0 (TCP)", "eth1 (TCP)"}) {
    auto* lane = up->add_lanes();
    lane->set_device(device);
    lane->set_state("up");
  }
  up->mutable_lanes(1)->set_state("lost");
  up->mutable_lanes(1)->set_reason("silent for 1.0 s");
  auto* down = report.add_peers();
  down->set_address("10.0.0.3:7777");
  down->set_state("refused");
  down->set_reason("its key is not in the allow-list\x1b[2J");
  const auto answer = show(report, Style{});
  expect_sound(answer, "peers");
  EXPECT_THAT(answer.problems,
              ElementsAre("the lane on eth1 (TCP) to b is not used: silent for 1.0 s",
                          "10.0.0.3:7777 is refused: its key is not in the allow-list\\x1b[2J"));
  EXPECT_THAT(answer.text,
              HasSubstr("b     10.0.0.2:7777  up       1 of 2  1 min 5 s  just now  3.0 MiB"));
  EXPECT_EQ(answer.json["peers"][0]["connected_seconds"], 65.0);
  EXPECT_EQ(answer.json["peers"][0]["damaged"], 2);
}

TEST(Show, ReportsWithoutContentAreSoundToo) {
  expect_sound(show(wire::StatusReport(), Style{}), "status");
  expect_sound(show(wire::PeersReport(), Style{}), "peers");
  expect_sound(show(wire::JobsReport(), Style{}), "jobs");
  expect_sound(show(wire::JobReport(), Style{}), "job");
}

// Four ranks on nodes a and b; op 17 was submitted by all but rank 3.
struct Job {
  wire::JobReport report;

  Job() {
    auto* summary = report.mutable_summary();
    summary->set_name("train");
    summary->set_incarnation("0123456789abcdef0123456789abcdef");
    summary->set_state("running");
    summary->set_size(4);
    summary->set_policy("fail");
    summary->set_counted_at(1);
    summary->set_ops_completed(17);
    report.set_staging_bytes(8 << 20);
    report.set_staging_cap(64 << 20);
    for (uint32_t rank = 0; rank < 4; ++rank) {
      auto* one = report.add_ranks();
      one->set_rank(rank);
      one->set_node(rank < 2 ? "a" : "b");
      one->set_pid(4708 + rank);
      one->set_state("training");
      one->set_process_state("S");
      one->set_ops_submitted(rank == 3 ? 17 : 18);
    }
  }

  wire::OpReport* add_op(const std::string& node, uint64_t age_ms) {
    auto* op = report.add_ops();
    op->mutable_key()->set_sequence(17);
    op->set_signature("allreduce sum of 1048576 float32");
    op->set_node(node);
    op->set_age_ms(age_ms);
    op->set_slices(8);
    return op;
  }
};

TEST(ShowJob, SaysWhoWaitsForWhom) {
  Job job;
  job.report.mutable_ranks(3)->set_process_state("T");
  job.add_op("a", 30'249)->add_waiting_nodes("b");
  job.add_op("b", 29'000)->add_waiting_for(3);
  const std::string sentence =
      "allreduce sum of 1048576 float32 (op 17): waiting 30.2 s for rank 3 (node b, pid 4711, "
      "state T "
      "stopped)";
  const auto answer = show(job.report, Style{});
  expect_sound(answer, "job");
  EXPECT_THAT(answer.text, HasSubstr("\n  " + sentence + "\n"));
  EXPECT_THAT(answer.text, HasSubstr("4 ranks on 2 nodes"));
  EXPECT_THAT(answer.text, HasSubstr("17 ops done, 0 open; staging 8.0 MiB of 64.0 MiB"));
  EXPECT_THAT(answer.problems,
              ElementsAre("rank 3 (node b, pid 4711) is in state T stopped", sentence));
  EXPECT_EQ(answer.json["ops"][0]["waiting_for"][0]["rank"], 3);
  EXPECT_EQ(answer.json["ops"][0]["age_seconds"], 30.249);
  EXPECT_EQ(answer.json["ops"][0]["waits_for"], "submission");
}

TEST(ShowJob, ManyLateOpsAreOneProblem) {
  Job job;
  for (uint64_t sequence : {17, 18, 19}) {
    auto* op = job.add_op("a", 20'000 - sequence);
    op->mutable_key()->set_sequence(sequence);
    op->add_waiting_for(1);
  }
  const auto answer = show(job.report, Style{});
  EXPECT_THAT(answer.problems, ElementsAre(AllOf(HasSubstr("(op 17): waiting 19.9 s for rank 1"),
                                                 EndsWith(", and 2 more ops late"))));
}

TEST(ShowJob, ShortWaitsAreHealthy) {
  Job job;
  job.add_op("a", 900)->add_waiting_for(1);
  const auto answer = show(job.report, Style{});
  expect_sound(answer, "job");
  EXPECT_THAT(answer.problems, IsEmpty());
  EXPECT_THAT(answer.text,
              HasSubstr("waiting 0.9 s for rank 1 (node a, pid 4709, state S sleeping)"));
}

TEST(ShowJob, ANodeThatHasNotBegunTheOpMeansAllItsRanks) {
  Job job;
  job.add_op("a", 5'000)->add_waiting_nodes("b");
  EXPECT_EQ(describe(open_ops(job.report).at(0)),
            "allreduce sum of 1048576 float32 (op 17): waiting 5.0 s for rank 2 (node b, pid 4710, "
            "state S sleeping) and rank 3 (node b, pid 4711, state S sleeping)");
}

TEST(ShowJob, ANodeThatIsSilentIsNamedAsSuch) {
  Job job;
  job.add_op("a", 5'000)->add_waiting_nodes("b");
  job.report.add_silent_nodes("b");
  job.report.mutable_ranks()->DeleteSubrange(2, 2);  // those of b
  const auto answer = show(job.report, Style{});
  expect_sound(answer, "job");
  EXPECT_THAT(answer.text, HasSubstr("4 ranks on 2 nodes"));
  EXPECT_THAT(answer.text, HasSubstr("waiting 5.0 s for node b (does not answer)"));
  EXPECT_THAT(answer.problems, ElementsAre("node b did not answer"));
  EXPECT_EQ(answer.json["ops"][0]["waits_for"], "daemon");
}

TEST(ShowJob, AnOpThatAllHaveSubmittedIsUnderWay) {
  Job job;
  job.add_op("a", 2'000)->set_slices_final(5);
  auto* other = job.add_op("b", 1'900);
  other->set_slices_final(3);
  other->add_waiting_nodes("a");  // its READY was still travelling when b was asked
  EXPECT_EQ(
      describe(open_ops(job.report).at(0)),
      "allreduce sum of 1048576 float32 (op 17): all have submitted it; its data is under way "
      "for 2.0 s, 3 of 8 slices final at node b");
  EXPECT_EQ(show(job.report, Style{}).json["ops"][0]["waits_for"], "data");
}

TEST(ShowJob, NamedOpsAndOrder) {
  Job job;
  job.add_op("a", 1'000)->add_waiting_for(0);
  auto* named = job.add_op("a", 60'000);
  named->mutable_key()->set_space(99);
  named->mutable_key()->set_sequence(2);
  named->set_name("layer/1\n");
  named->add_waiting_for(7);  // a rank nobody reported
  const auto ops = open_ops(job.report);
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_EQ(
      describe(ops[0]),
      "allreduce sum of 1048576 float32 (\"layer/1\\x0a\", use 2): waiting 1 min 0 s for rank 7 "
      "(node a)");
  EXPECT_EQ(ops[1].sequence, 17u);
  named->clear_name();
  EXPECT_THAT(describe(open_ops(job.report)[0]), HasSubstr("float32 (use 2): waiting"));
}

TEST(ShowJob, FailedJobsAndDeadRanksAreUnhealthy) {
  Job job;
  job.report.mutable_summary()->set_state("failed");
  job.report.mutable_summary()->set_explanation("trainer died: rank 1");
  job.report.mutable_ranks(1)->set_state("dead");
  const auto answer = show(job.report, Style{});
  expect_sound(answer, "job");
  EXPECT_THAT(answer.problems, ElementsAre("the job has failed: trainer died: rank 1",
                                           "rank 1 (node a, pid 4709) is dead"));
}

TEST(ShowJob, NamesTheFirstNanAndCountsByRank) {
  Job job;
  job.report.mutable_ranks(3)->set_nonfinite(12);
  auto* first = job.report.mutable_first_nonfinite();
  first->set_kind("nan");
  first->set_node("b");
  first->set_has_rank(true);
  first->set_rank(3);
  first->set_pid(4711);
  first->mutable_key()->set_space(99);
  first->mutable_key()->set_sequence(2);
  first->set_name("grad.7\n");
  first->set_element(12034);
  first->set_age_us(12'345'678);
  auto answer = show(job.report, Style{});
  expect_sound(answer, "job");
  EXPECT_THAT(answer.text,
              HasSubstr("\nfirst NaN: rank 3 (node b, pid 4711), op 'grad.7\\x0a' use 2 "
                        "element 12034, 12 s ago\n"));
  EXPECT_THAT(answer.text, HasSubstr("  NaN, infinite\n"));
  EXPECT_THAT(answer.text, HasSubstr("             12\n"));
  EXPECT_THAT(answer.problems, IsEmpty()) << "training with loss scaling overflows now and then";
  EXPECT_EQ(answer.json["ranks"][3]["nonfinite"], 12);
  EXPECT_EQ(answer.json["first_nonfinite"]["rank"], 3);
  EXPECT_EQ(answer.json["first_nonfinite"]["element"], 12034);
  EXPECT_EQ(answer.json["first_nonfinite"]["age_seconds"], 12.345);

  first->set_kind("infinity");
  first->clear_name();
  first->mutable_key()->set_space(0);
  EXPECT_THAT(show(job.report, Style{}).text,
              HasSubstr("first infinity: rank 3 (node b, pid 4711), op 2 element 12034, 12 s ago"));
}

TEST(ShowJob, AnOverflowIsOfANodeAndOfNoRank) {
  Job job;
  auto* first = job.report.mutable_first_nonfinite();
  first->set_kind("overflow");
  first->set_node("b");
  first->mutable_key()->set_sequence(5);
  first->set_element(3);
  const auto answer = show(job.report, Style{});
  expect_sound(answer, "job");
  EXPECT_THAT(answer.text, HasSubstr("\nfirst overflow: node b, op 5 element 3, just now; all "
                                     "values were finite, their sum was not (in its type, or in "
                                     "that of the wire)\n"));
  EXPECT_FALSE(answer.json["first_nonfinite"].contains("rank"));
}

TEST(ShowJob, WhereAllIsFiniteNothingIsSaidOfIt) {
  const auto answer = show(Job().report, Style{});
  EXPECT_THAT(answer.text, Not(HasSubstr("NaN")));
  EXPECT_FALSE(answer.json.contains("first_nonfinite"));
  EXPECT_EQ(answer.json["ranks"][0]["nonfinite"], 0);
}

TEST(ShowJob, SaysByWhichTableSumsGoAndWhy) {
  Job job;
  auto* tuning = job.report.mutable_tuning();
  tuning->set_state("searching");
  tuning->set_table("64K:parts");
  auto* small = tuning->add_sizes();
  small->set_up_to_bytes(64 << 10);
  small->set_way("parts");
  small->set_before("whole");
  small->set_gain(0.123);
  small->set_samples(40);
  auto* large = tuning->add_sizes();
  large->set_up_to_bytes(0);
  large->set_way("default");
  large->set_tried("128K");
  large->set_left(3);
  auto* same = tuning->add_sizes();
  same->set_up_to_bytes(16 << 20);
  same->set_way("default");
  auto answer = show(job.report, Style{});
  expect_sound(answer, "job");
  EXPECT_THAT(answer.text,
              HasSubstr("\nsums go by 64K:parts (searching)\n"
                        "sums            go by    because                                         "
                        "on trial\n"
                        "up to 64.0 KiB  parts    12 % less time than whole (medians of 40 each)  "
                        "-\n"
                        "above that      default  -                                               "
                        "128K, then 3 more\n"
                        "up to 16.0 MiB  default  nothing better was found                        "
                        "-\n"));
  EXPECT_EQ(answer.json["tuning"]["sizes"][0]["before"], "whole");
  EXPECT_EQ(answer.json["tuning"]["sizes"][1]["tried"], "128K");
  EXPECT_FALSE(answer.json["tuning"]["sizes"][2].contains("gain"));
  EXPECT_TRUE(answer.problems.empty());
}

TEST(Schema, CatchesWhatIsWrong) {
  auto document = document_of(show(healthy_daemon(), Style{}));
  const auto schema = schema_of("status");
  auto wrong = document;
  wrong["pid"] = "4242";
  EXPECT_EQ(offence(schema, wrong), "$.pid is not of type integer");
  wrong = document;
  wrong.erase("node");
  EXPECT_EQ(offence(schema, wrong), "$.node is missing");
  wrong = document;
  wrong["limits"][0]["colour"] = "red";
  EXPECT_EQ(offence(schema, wrong), "$.limits[0].colour is not in the schema");
  wrong = document;
  wrong["schema_version"] = 2;
  EXPECT_EQ(offence(schema, wrong), "$.schema_version has another value");
}

}  // namespace
}  // namespace gradring::tools
