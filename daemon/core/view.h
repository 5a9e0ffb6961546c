#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/types.h"

namespace gradring::core {

struct RankInfo {
  uint32_t rank = 0;
  uint32_t local_rank = 0;
  int64_t pid = 0;
  uint64_t claim = 0;  // which claim of the rank; a restarted trainer makes a new one

  bool operator==(const RankInfo&) const = default;
};

struct Member {
  std::string node;
  std::vector<RankInfo> ranks;  // ascending by rank, never empty

  bool operator==(const Member&) const = default;
};

// The agreed member list of one life of a job. A value: it is made once, checked, and never edited;
// an op keeps the view it began with. Members stand in ring order.
struct View {
  std::string job;
  JobId incarnation{};
  uint64_t epoch = 0;
  uint32_t size = 0;  // ranks
  std::string policy;
  uint32_t uid = 0;
  std::vector<Member> members;

  bool operator==(const View&) const = default;

  std::optional<uint32_t> index_of(const std::string& node) const;
  // The member that hosts `rank`; requires a checked view and rank < size.
  uint32_t host_of(uint32_t rank) const;
  const RankInfo& info_of(uint32_t rank) const;
};

// Ring order: by the lowest rank a member hosts, so that neighbours in rank are neighbours on the
// wire.
void sort_into_ring(std::vector<Member>* members);

// Empty when every rank 0..size-1 is there exactly once, no node twice and every member has ranks
// in ascending order; else a sentence that names what is wrong.
std::string fault_of(const View& view);

}  // namespace gradring::core
