// Nodes die, reports are taken, views follow one another.

#include <algorithm>

#include "daemon/core/recovery.h"
#include "proto/check.h"
#include "tests/core/engine_ring_node.h"

namespace gradring::core {

bool Ring::alive(uint32_t node) const { return nodes_[node]->alive; }

const View& Ring::view_of(uint32_t node) const { return nodes_[node]->engine.view(); }

const std::vector<Absence>& Ring::absences(uint32_t node) const { return nodes_[node]->absences; }

size_t Ring::absences() const {
  size_t sum = 0;
  for (const auto& node : nodes_) sum += node->absences.size();
  return sum;
}

size_t Ring::join_points(uint32_t node) const { return nodes_[node]->join_points; }

const std::vector<Asked>& Ring::asked(uint32_t node) const { return nodes_[node]->asked; }

size_t Ring::copies(uint32_t node) const { return nodes_[node]->kept.size(); }
uint32_t Ring::copies_ever(uint32_t node) const { return nodes_[node]->kept_ever; }

const std::vector<uint32_t>& Ring::units_sent_to(uint32_t node) const {
  return nodes_[node]->units_sent_to;
}

void Ring::crash(uint32_t node, Wake wake) {
  nodes_[node]->alive = false;
  if (wake == Wake::kArrives) return;
  for (uint32_t to = 0; to < nodes(); ++to) {
    std::deque<Parcel>& parcels = link(node, to);
    if (wake == Wake::kTorn && nodes_[to]->alive) {
      const auto slice = std::find_if(parcels.begin(), parcels.end(), [](const Parcel& parcel) {
        return parcel.frame.type == FrameType::kSlice;
      });
      if (slice != parcels.end() && !of_later_epoch(to, slice->frame)) {
        nodes_[to]->tear(node, *slice);
      }
    }
    parcels.clear();
  }
}

void Ring::restart(uint32_t number, Wake wake) {
  crash(number, wake);
  for (uint32_t to = 0; to < nodes(); ++to) {
    for (Parcel& parcel : link(number, to)) parcel.lent.reset();
  }
  nodes_[number] = std::make_unique<Node>(this, *nodes_[number]);
}

void Ring::lose_rank(uint32_t rank, const std::string& gpu) {
  Failure failure{Cause::kTrainerDied, {}};
  failure.blame.rank = rank;
  failure.blame.device = gpu;
  lost_ranks_[rank] = failure;
  engine_of_rank(rank).leave(rank, failure);
}

void Ring::freeze(uint32_t number) {
  Node& node = *nodes_[number];
  Report report = node.engine.freeze();
  EXPECT_EQ(report.node, name_of_node(number));
  const View& view = node.engine.view();
  for (const RankInfo& info : view.members[node.engine.me()].ranks) {
    const auto lost = lost_ranks_.find(info.rank);
    if (lost == lost_ranks_.end()) {
      report.ranks.push_back(info);
    } else {
      report.lost.push_back({info.rank, lost->second});
    }
  }
  for (uint32_t other = 0; other < nodes(); ++other) {
    if (other != number && alive(other)) report.reachable.push_back(name_of_node(other));
  }
  node.report = report;
}

Proposal Ring::decide() {
  std::map<std::string, Report> reports;
  std::map<std::string, Failure> lost;
  const View* old = nullptr;
  for (uint32_t number = 0; number < nodes(); ++number) {
    const Node& node = *nodes_[number];
    if (node.alive && node.report) {
      if (old == nullptr) old = &node.engine.view();
      EXPECT_EQ(node.engine.view(), *old);
      reports[node.report->node] = *node.report;
    } else if (!node.alive) {
      Failure failure{Cause::kPeerLost, {}};
      failure.blame.node = name_of_node(number);
      lost[failure.blame.node] = failure;
    }
  }
  GRADRING_CHECK(old != nullptr, "somebody is alive");
  auto proposal = core::decide(*old, reports, lost, {});
  EXPECT_TRUE(proposal.has_value()) << proposal.error();
  return proposal.value_or(Proposal{});
}

void Ring::adopt(uint32_t number, const Proposal& proposal) {
  if (proposal.view.index_of(name_of_node(number))) {
    nodes_[number]->adopt(proposal);
  } else {
    nodes_[number]->engine.fail({Cause::kExcluded, {}});
  }
  check_slots();
}

Proposal Ring::change_view() {
  for (uint32_t node = 0; node < nodes(); ++node) {
    if (alive(node) && !engine(node).failed()) freeze(node);
  }
  const Proposal proposal = decide();
  for (uint32_t node = 0; node < nodes(); ++node) {
    if (alive(node) && !engine(node).failed()) adopt(node, proposal);
  }
  return proposal;
}

}  // namespace gradring::core
