// Two lanes between every two nodes: one swallows what is on it, until its ends notice.

#include "tests/sim/world.h"

namespace gradring::sim {
namespace {

// As the daemon deals them out: slices in turn, everything else on the first.
uint32_t lane_of(const Frame& frame) {
  return frame.type == FrameType::kSlice ? frame.slice.lane % kLanes : 0;
}

}  // namespace

uint32_t World::lane_for(const Link& link, const Frame& frame) {
  const uint32_t lane = lane_of(frame);
  return link.avoids && link.broken == lane ? (lane + 1) % kLanes : lane;
}

// Of its frames that are on their way, and of those that are to come, none arrives.
void World::break_lane(uint32_t from, uint32_t to, uint32_t lane) {
  Link& l = link(from, to);
  l.broken = lane;
  l.avoids = false;
  ++l.lane_generation[lane];
}

void World::lose_lane(const Fault& fault) {
  const uint32_t lane = fault.mask & 1;
  const bool one_way = (fault.mask & 2) != 0;
  for (const auto& [self, peer] : {std::pair(fault.a, fault.b), std::pair(fault.b, fault.a)}) {
    if (!link(self, peer).up || link(self, peer).broken) return;
  }
  ++stats_.faults;
  ++stats_.lanes_lost;
  break_lane(fault.a, fault.b, lane);
  if (!one_way) break_lane(fault.b, fault.a, lane);
  const Time at_a = delay(fault.detected);
  const Time at_b = delay(fault.detected);
  notice_lane(fault.a, fault.b, lane, at_a);
  notice_lane(fault.b, fault.a, lane, at_b);
  if (fault.lasts == 0) return;
  events_.in(std::max({at_a, at_b, fault.lasts}), [this, a = fault.a, b = fault.b] {
    for (Link* l : {&link(a, b), &link(b, a)}) {
      // One that was swallowed from and has not been avoided since cannot just go on.
      if (l->broken && l->avoids) l->broken.reset();
    }
  });
}

void World::notice_lane(uint32_t self, uint32_t peer, uint32_t lane, Time within) {
  SimNode* node = nodes_[self].get();
  const uint64_t connection = link(self, peer).connection;
  events_.in(within, [this, node, self, peer, lane, connection] {
    node->run([this, node, self, peer, lane, connection] {
      Link& mine = link(self, peer);
      if (mine.connection != connection || !mine.open) return;
      trace([&] { return node->name() + " has lost a lane to n" + std::to_string(peer); });
      if (mine.broken == lane) mine.avoids = true;
      mine.disturbed = events_.now();
      node->membership().lane_lost("n" + std::to_string(peer), "a lane was lost");
    });
  });
}

}  // namespace gradring::sim
