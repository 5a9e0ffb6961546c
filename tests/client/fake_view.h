#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/wire.h"

namespace gradring::test {

// The handle of the fake daemon's one job.
inline constexpr uint64_t kFakeJob = 77;

// A view of that job: rank 0 on a node of its own, all others on the fake's (or all, if
// `alone_here`). All are there since the beginning.
inline wire::View view_of(const std::string& job, uint64_t epoch,
                          const std::vector<uint32_t>& ranks, bool alone_here = false) {
  wire::View view;
  view.set_job(job);
  view.set_epoch(epoch);
  view.set_size(static_cast<uint32_t>(ranks.size()));
  view.set_grown(1);
  wire::Member& elsewhere = *view.add_members();
  elsewhere.set_node("elsewhere");
  wire::Member& here = *view.add_members();
  here.set_node("fake");
  for (const uint32_t rank : ranks) {
    wire::RankInfo& info = *(rank == 0 && !alone_here ? elsewhere : here).add_ranks();
    info.set_rank(rank);
    info.set_local_rank(7);
    info.set_since(1);
  }
  return view;
}

// `rank` came in with the view's epoch, and the view grew by that.
inline void came_in(wire::View& view, uint32_t rank) {
  view.set_grown(view.epoch());
  for (wire::Member& member : *view.mutable_members()) {
    for (wire::RankInfo& info : *member.mutable_ranks()) {
      if (info.rank() == rank) info.set_since(view.epoch());
    }
  }
}

}  // namespace gradring::test
