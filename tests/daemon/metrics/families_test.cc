#include "daemon/metrics/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <regex>
#include <set>

namespace gradring::daemon::metrics {
namespace {

using testing::HasSubstr;
using testing::Not;

Snapshot sample() {
  Snapshot s;
  s.taken = 100 * core::kSecond;
  s.node = "n0";
  s.version = "0.1.0";
  s.transport = "ucx 1.13.1";
  s.uptime = 7 * core::kSecond;
  s.sessions = {2, 1024};
  s.data_loop = {3 * core::kSecond, 2 * core::kMillisecond};
  s.jobs_by_state = {{"forming", 0}, {"running", 1}};
  s.client_deaths = {{"killed", 3}};
  s.job_failures[static_cast<size_t>(Cause::kPeerLost)] = 2;
  s.frames_dropped = {{"forged", 1}};
  s.registrations = 4;
  s.registered_bytes = 9 << 20;
  JobSeries& job = s.job_series.emplace_back();
  job.label = "resnet";
  core::Outcome ok;
  job.ops.record(Collective::kAllreduce, 1 << 20, ok, 30'000);
  job.ops.record(Collective::kAllreduce, 1 << 20, ok, 40 * core::kSecond);
  core::Outcome failed;
  failed.verdict = Verdict::kFailed;
  failed.failure.cause = Cause::kTrainerDied;
  job.ops.record(Collective::kBarrier, 0, failed, 1);
  core::StepTotals steps;
  steps.steps = 2;
  steps.all = {.compute = 3 * core::kSecond,
               .overlapped = core::kSecond,
               .straggler = core::kSecond / 2,
               .exposed = core::kSecond / 4};
  steps.lateness[0] = 1;
  steps.lateness.back() = 1;
  steps.late_sum = 2 * core::kSecond;
  job.ranks.push_back({"3", 12, 1, steps, core::kSecond / 2});
  job.ranks.push_back({"4", 12, 0, {}, std::nullopt});
  job.live = {{.epoch = 2, .size = 4, .local = 2, .nodes = 2, .oldest_open = core::kSecond}};
  PeerSeries& peer = s.peer_series.emplace_back();
  peer.label = "n1";
  peer.state = "suspect";
  peer.silent = core::kSecond;
  peer.lanes = {{"up", 5, 6}, {"lost", 7, 8}};
  peer.lane_losses = 1;
  s.peers_by_state = {{"suspect", 1}};
  s.ports.push_back({"mlx5_0", 1, false, {{"down", 2}, {"lid", 1}}, {{"retransmits", 9}}});
  s.ports.push_back({"eth0", 0, true, {{"down", 1}, {"lid", 0}}, {}});
  s.gpu_series.push_back({"GPU-1234", true, {{"31", 5}, {"79", 1}}});
  s.gpu_series.push_back({"GPU-5678", false, {}});
  s.gpus_given_up = true;
  return s;
}

std::string page_of(const Snapshot& snapshot, core::Time now) {
  return prometheus::TextSerializer().Serialize(families_of(snapshot, now));
}

TEST(Families, ThePageSaysWhatTheSnapshotSays) {
  const std::string page = page_of(sample(), 102 * core::kSecond);
  for (const char* line : {
           R"(gradring_build_info{node="n0",version="0.1.0",transport="ucx 1.13.1"} 1)",
           R"(gradring_uptime_seconds{node="n0"} 9)",
           R"(gradring_snapshot_age_seconds{node="n0"} 2)",
           R"(gradring_sessions{node="n0"} 2)",
           R"(gradring_loop_busy_seconds_total{node="n0",thread="data"} 3)",
           R"(gradring_jobs{node="n0",state="running"} 1)",
           R"(gradring_registrations_total{node="n0"} 4)",
           R"(gradring_registered_bytes{node="n0"} 9437184)",
           R"(gradring_client_deaths_total{node="n0",cause="killed"} 3)",
           R"(gradring_job_failures_total{node="n0",cause="peer lost"} 2)",
           R"(gradring_job_epoch{node="n0",job="resnet"} 2)",
           R"(gradring_job_oldest_op_seconds{node="n0",job="resnet"} 1)",
           R"(gradring_ops_total{node="n0",job="resnet",collective="allreduce",outcome="ok"} 2)",
           R"(gradring_ops_total{node="n0",job="resnet",collective="barrier",outcome="failed"} 1)",
           R"(gradring_op_failures_total{node="n0",job="resnet",cause="trainer died"} 1)",
           R"(gradring_op_bytes_total{node="n0",job="resnet",collective="allreduce"} 2097152)",
           R"(gradring_rank_submissions_total{node="n0",job="resnet",rank="3"} 12)",
           R"(gradring_rank_quiet_seconds{node="n0",job="resnet",rank="3"} 0.5)",
           R"(gradring_peer_state{node="n0",peer="n1",state="suspect"} 1)",
           R"(gradring_peer_state{node="n0",peer="n1",state="up"} 0)",
           R"(gradring_lane_state{node="n0",peer="n1",lane="1",state="lost"} 1)",
           R"(gradring_lane_received_bytes_total{node="n0",peer="n1",lane="1"} 8)",
           R"(gradring_lane_failovers_total{node="n0",peer="n1"} 1)",
       }) {
    EXPECT_THAT(page, HasSubstr(std::string(line) + "\n"));
  }
}

TEST(Families, AHistogramIsCumulativeAndEndsAtInfinity) {
  const std::string page = page_of(sample(), 100 * core::kSecond);
  const std::string begin =
      R"(gradring_op_duration_seconds_bucket{node="n0",job="resnet",size="1MiB",le=")";
  EXPECT_THAT(page, HasSubstr(begin + "5e-05\"} 1\n"));
  EXPECT_THAT(page, HasSubstr(begin + "30\"} 1\n"));
  EXPECT_THAT(page, HasSubstr(begin + "+Inf\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("_sum{node=\"n0\",job=\"resnet\",size=\"1MiB\"} 40.00003\n"));
  EXPECT_THAT(page, Not(HasSubstr("size=\"4KiB\""))) << "of which there was none";
}

TEST(Families, StepsAreSplitForRanksThatMakeAny) {
  const std::string page = page_of(sample(), 100 * core::kSecond);
  const std::string of = R"({node="n0",job="resnet",rank="3")";
  for (const std::string& line : {
           "gradring_rank_steps_total" + of + "} 2\n",
           "gradring_rank_step_seconds_total" + of + ",part=\"compute\"} 3\n",
           "gradring_rank_step_seconds_total" + of + ",part=\"input\"} 0\n",
           "gradring_rank_step_seconds_total" + of + ",part=\"straggler\"} 0.5\n",
           "gradring_rank_step_seconds_total" + of + ",part=\"exposed\"} 0.25\n",
           "gradring_rank_overlapped_seconds_total" + of + "} 1\n",
           "gradring_rank_lateness_seconds_bucket" + of + ",le=\"0.0001\"} 1\n",
           "gradring_rank_lateness_seconds_bucket" + of + ",le=\"1\"} 1\n",
           "gradring_rank_lateness_seconds_bucket" + of + ",le=\"+Inf\"} 2\n",
           "gradring_rank_lateness_seconds_sum" + of + "} 2\n",
       }) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  EXPECT_THAT(page,
              Not(HasSubstr("gradring_rank_steps_total{node=\"n0\",job=\"resnet\",rank=\"4\"")));
}

TEST(Families, PortsAreOfTheirDevices) {
  const std::string page = page_of(sample(), 0);
  for (
      const char* line : {
          R"(gradring_port_active{node="n0",device="mlx5_0",port="1"} 0)",
          R"(gradring_port_active{node="n0",device="eth0",port="0"} 1)",
          R"(gradring_port_changes_total{node="n0",device="mlx5_0",port="1",change="lid"} 1)",
          R"(gradring_port_changes_total{node="n0",device="eth0",port="0",change="down"} 1)",
          R"(gradring_rdma_port_events_total{node="n0",device="mlx5_0",port="1",counter="retransmits"} 9)",
      }) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  EXPECT_THAT(page, Not(HasSubstr(R"(device="eth0",port="0",change="lid")")));
  EXPECT_THAT(page, Not(HasSubstr(R"(gradring_rdma_port_events_total{node="n0",device="eth0")")));
}

TEST(Families, ErrorsAreOfTheirGpus) {
  const std::string page = page_of(sample(), 0);
  for (const char* line : {
           R"(gradring_gpu_unusable{node="n0",gpu="GPU-1234"} 1)",
           R"(gradring_gpu_unusable{node="n0",gpu="GPU-5678"} 0)",
           R"(gradring_gpus_given_up{node="n0"} 1)",
           R"(gradring_gpu_xid_errors_total{node="n0",gpu="GPU-1234",xid="31"} 5)",
           R"(gradring_gpu_xid_errors_total{node="n0",gpu="GPU-1234",xid="79"} 1)",
       }) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

TEST(Families, AJobThatIsOverHasCountersAlone) {
  Snapshot s = sample();
  s.job_series[0].live.reset();
  const std::string page = page_of(s, s.taken);
  EXPECT_THAT(page, Not(HasSubstr("gradring_job_epoch{")));
  EXPECT_THAT(page, HasSubstr("gradring_ops_total{node=\"n0\",job=\"resnet\""));
}

TEST(Families, TheSameAreThereWhateverHasHappened) {
  const auto names = [](const Snapshot& snapshot) {
    std::vector<std::string> list;
    for (const auto& family : families_of(snapshot, snapshot.taken)) list.push_back(family.name);
    return list;
  };
  EXPECT_EQ(names(sample()), names(Snapshot()));
}

// As https://prometheus.io/docs/practices/naming asks.
TEST(Families, NamesFollowTheRules) {
  std::set<std::string> seen;
  for (const auto& family : families_of(sample(), 0)) {
    EXPECT_TRUE(std::regex_match(family.name, std::regex("gradring_[a-z_]+"))) << family.name;
    EXPECT_TRUE(seen.insert(family.name).second) << family.name << " is there twice";
    EXPECT_FALSE(family.help.empty()) << family.name;
    const bool total =
        family.name.size() > 6 && family.name.rfind("_total") == family.name.size() - 6;
    EXPECT_EQ(total, family.type == prometheus::MetricType::Counter) << family.name;
    for (const auto& metric : family.metric) {
      EXPECT_EQ(metric.label.front().name, "node") << family.name;
      for (const auto& label : metric.label) {
        EXPECT_TRUE(std::set<std::string>({"node",   "job",     "peer",      "lane",   "collective",
                                           "rank",   "outcome", "cause",     "part",   "size",
                                           "state",  "thread",  "version",   "device", "port",
                                           "change", "counter", "transport", "gpu",    "xid"})
                        .count(label.name))
            << family.name << " has " << label.name;
      }
    }
  }
}

}  // namespace
}  // namespace gradring::daemon::metrics
