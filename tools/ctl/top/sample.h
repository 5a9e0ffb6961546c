#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "client.pb.h"
#include "proto/status.h"
#include "tools/ctl/ask.h"

namespace gradring::tools::top {

// Whose links and jobs are looked at: of all nodes that answer, or of one.
struct Choice {
  bool all = false;
  std::string node{};  // of one; empty: of the daemon that is asked

  bool operator==(const Choice&) const = default;
};

struct NodeSample {
  std::string node;
  wire::StatusReport status;
  wire::PeersReport peers;
};

struct JobSample {
  std::string answered;  // the node whose counts are in it
  wire::JobReport report;
};

// What daemons say at about the same moment.
struct Sample {
  std::string here;                // the node of the daemon that is asked
  std::vector<std::string> peers;  // of it, that can be asked
  std::vector<NodeSample> nodes;   // that were chosen and answered
  std::vector<JobSample> jobs;
  // From here to a peer and back by the control connections, its answering included.
  std::map<std::string, int64_t> rtt_ns;
  size_t silent = 0;                  // nodes that were chosen and did not answer
  std::vector<std::string> problems;  // sentences: who did not answer, and why
  std::vector<std::string> left_out;  // sentences: what there is more of than is asked about
  // Ops that each job had done by what it is asked for by, those that are not asked about as well.
  std::map<std::string, uint64_t> done;
};

// Of the jobs that are listed those that are asked about where there is no room for all: first the
// ones that have failed, or wait for an op and have done none since the look before.
bool wants_a_look(const wire::JobSummary& job, const std::map<std::string, uint64_t>& done_before);

// Each in a bounded time, as Questions says; its errors are those of the daemon here.
// `before` may be empty.
tl::expected<Sample, Status> take_sample(Questions& questions, const Choice& choice,
                                         const Sample& before);

}  // namespace gradring::tools::top
