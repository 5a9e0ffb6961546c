#pragma once

#include <string>

#include "tools/ctl/top/sample.h"

namespace gradring::tools::top {

// Two nodes with a job of two ranks each, as the daemon of n0 tells of it at a second of its clock.
inline Sample sample_at(int64_t second) {
  const auto count = static_cast<uint64_t>(second);
  Sample sample;
  sample.here = "n0";
  sample.peers = {"n1"};
  sample.rtt_ns["n1"] = 250'000;

  NodeSample node{"n0", {}, {}};
  node.status.set_node("n0");
  node.status.set_state("ready");
  node.status.set_version("0.1.0");
  node.status.set_uptime_ms(7'260'000);
  const auto add_limit = [&node](const char* name, uint64_t used, uint64_t cap, const char* unit) {
    auto* limit = node.status.add_limits();
    limit->set_name(name);
    limit->set_used(used);
    limit->set_cap(cap);
    limit->set_unit(unit);
  };
  add_limit("segment-limit", 32 << 20, uint64_t{8} << 30, "bytes");
  add_limit("max-sessions", 2, 1024, "trainers");
  add_limit("max-jobs", 256, 256, "jobs");
  node.peers.set_counted_at(second * 1'000'000'000);
  auto* peer = node.peers.add_peers();
  peer->set_node("n1");
  peer->set_state("up");
  auto* lane = peer->add_lanes();
  lane->set_device("eth0");
  lane->set_state("up");
  lane->set_sent_bytes(count * 125'000'000);
  lane->set_received_bytes(count * 62'500'000);
  auto* lost = node.peers.add_peers();
  lost->set_address("10.0.0.3:7300");
  lost->set_state("connecting");
  lost->set_reason("connection refused");
  sample.nodes.push_back(node);

  JobSample job{"n0", {}};
  auto* summary = job.report.mutable_summary();
  summary->set_name("llama");
  summary->set_incarnation("0123456789abcdef");
  summary->set_state("running");
  summary->set_size(4);
  summary->set_epoch(1);
  summary->set_policy("fail");
  summary->set_counted_at(second * 1'000'000'000);
  summary->set_ops_completed(count * 100);
  auto* moved = summary->add_moved();
  moved->set_collective("allreduce");
  moved->set_bytes(count * 4'000'000'000);
  for (uint32_t i = 0; i < 4; ++i) {
    auto* rank = job.report.add_ranks();
    rank->set_rank(i);
    rank->set_node(i < 2 ? "n0" : "n1");
    rank->set_pid(4000 + i);
    rank->set_state("waiting");
    rank->set_process_state("S");
    rank->set_ops_submitted(count * 100);
    auto* steps = rank->mutable_steps();
    steps->set_steps(100);
    steps->set_recent(100);
    steps->mutable_mean()->set_compute_us(75'000);
    steps->mutable_mean()->set_exposed_us(25'000);
  }
  auto* late = job.report.mutable_ranks(3)->mutable_steps();
  late->set_late(90);
  late->set_late_us(41'000);
  late->mutable_mean()->set_compute_us(112'500);
  late->mutable_mean()->set_exposed_us(37'500);
  auto* op = job.report.add_ops();
  op->mutable_key()->set_sequence(17);
  op->set_signature("allreduce sum of 1024 float32");
  op->set_node("n1");
  op->set_age_ms(30'200);
  op->add_waiting_for(3);
  sample.jobs.push_back(job);
  return sample;
}

}  // namespace gradring::tools::top
