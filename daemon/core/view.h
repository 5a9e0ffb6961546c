#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/tuning.h"
#include "proto/types.h"
#include "proto/verdict.h"

namespace gradring::core {

struct RankInfo {
  uint32_t rank = 0;
  uint32_t local_rank = 0;
  int64_t pid = 0;
  uint64_t claim = 0;  // which claim of the rank; a restarted trainer makes a new one
  uint64_t since = 1;  // the epoch in which it came: the oldest know the job's state

  bool operator==(const RankInfo&) const = default;
};

struct Member {
  std::string node;
  std::vector<RankInfo> ranks;  // ascending by rank; empty only in a closed view

  bool operator==(const Member&) const = default;
};

// The agreed member list of one life of a job. A value: it is made once, checked, and never edited.
// Members stand in ring order. A rank keeps its number for life; where one is lost, a gap stays.
struct View {
  std::string job;
  JobId incarnation{};
  uint64_t epoch = 0;
  uint32_t size = 0;  // ranks that are there
  std::string policy;
  uint32_t uid = 0;
  std::vector<Member> members;
  uint64_t grown = 1;             // the epoch in which ranks joined last; op keys begin anew there
  std::optional<Failure> closed;  // the job takes no new op: policy fail, or too few are left
  std::string explanation;        // one sentence: how this view came about
  Tuning tuning;                  // holds for these nodes: where others come, it is empty

  bool operator==(const View&) const = default;

  std::optional<uint32_t> index_of(const std::string& node) const;
  bool has(uint32_t rank) const;
  // The member that hosts `rank`; requires has(rank).
  uint32_t host_of(uint32_t rank) const;
  const RankInfo& info_of(uint32_t rank) const;
  // The member with the lowest node id (bytewise), which tips the scales between two halves.
  uint32_t lowest() const;
  // The rank to take the job's state from: the lowest of those who are there longest.
  uint32_t oldest_rank() const;
};

// More than half of the view's members, or exactly half with the lowest among them: any two such
// sets have a member in common.
bool is_quorum(const View& view, const std::vector<std::string>& nodes);

// Ring order: by the lowest rank a member hosts, so that neighbours in rank are neighbours on the
// wire. Members without ranks come last, by name.
void sort_into_ring(std::vector<Member>* members);

// Empty when the ranks are all different and as many as `size` says, in the first epoch exactly
// 0..size-1, no node is there twice and every member of a view that is not closed has ranks, in
// ascending order; else a sentence that names what is wrong.
std::string fault_of(const View& view);

}  // namespace gradring::core
