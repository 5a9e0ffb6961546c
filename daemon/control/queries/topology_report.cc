// What gradringctl topology is told: the machine, our lanes, the other nodes, and the rings.

#include <fmt/format.h>

#include <algorithm>

#include "daemon/clock.h"
#include "daemon/control/hardware/gpu_lanes.h"
#include "daemon/control/queries/queries.h"

namespace gradring::daemon {
namespace {

// Of the first members, each with its lowest rank.
std::string order_of(const core::View& view) {
  constexpr size_t kShown = 4;
  std::string text;
  for (size_t i = 0; i < std::min(view.members.size(), kShown); ++i) {
    const core::Member& member = view.members[i];
    if (member.ranks.empty()) continue;
    text += fmt::format("{}{} has {}", text.empty() ? "" : ", ", member.node,
                        member.ranks.front().rank);
  }
  return text + (view.members.size() > kShown ? ", ..." : "");
}

}  // namespace

wire::TopologyReport Queries::topology_report() const {
  wire::TopologyReport report;
  report.set_node(config_.node);
  *report.mutable_machine() = parts_.look->report();
  for (const StandingFacts::Lane& lane : facts_.lanes) {
    wire::LaneChoice* to = report.add_lanes();
    to->set_device(lane.device);
    to->set_reason(lane.reason);
    to->set_nic(nic_of(report.machine(), lane.device));
    if (!lane.gid.type().empty()) *to->mutable_gid() = lane.gid;
    to->set_reaches_gpus(lane.reaches_gpus);
    to->set_path_mtu(config_.rdma_path_mtu.value_or(0));
  }
  const wire::PeersReport peers = parts_.peers->report(monotonic_now());
  for (const wire::PeerReport& peer : peers.peers()) {
    wire::NodeReport* to = report.add_peers();
    to->set_node(peer.node());
    to->set_address(peer.address());
    to->set_state(peer.state());
    for (const wire::LaneReport& lane : peer.lanes()) {
      wire::NodeLane* shown = to->add_lanes();
      shown->set_device(lane.device());
      shown->set_state(lane.state());
    }
  }
  wire::GpuSumsReport* const sums = report.mutable_gpu_sums();
  const Status fault = parts_.gpus != nullptr ? parts_.gpus->fault() : Status();
  sums->set_on_gpus(!facts_.gpu_sums_by.empty() && fault.ok());
  sums->set_by(facts_.gpu_sums_by);
  sums->set_reason(fault.ok() ? facts_.gpu_sums_reason : fault.message());
  sums->set_way(facts_.gpu_sums_way);
  sums->set_mps(facts_.gpus_under_mps);
  sums->set_network(facts_.gpu_direct.how);
  parts_.ports->add_to(&report, monotonic_now());
  parts_.gpu_health->add_to(&report, monotonic_now());
  add_rings(&report);
  return report;
}

void Queries::add_rings(wire::TopologyReport* report) const {
  for (const core::JobInfo& info : parts_.membership->jobs()) {
    if (info.state != core::JobState::kRunning) continue;
    const Jobs::Job* job = parts_.jobs->find(info.incarnation);
    if (job == nullptr) continue;
    wire::RingReport* ring = report->add_rings();
    ring->set_job(info.name);
    ring->set_incarnation(hex(info.incarnation));
    ring->set_epoch(job->view.epoch);
    ring->set_reason("in the order of their lowest ranks: " + order_of(job->view));
    for (const core::Member& member : job->view.members) {
      wire::RingMember* to = ring->add_members();
      to->set_node(member.node);
      for (const core::RankInfo& rank : member.ranks) to->add_ranks(rank.rank);
    }
  }
}

}  // namespace gradring::daemon
