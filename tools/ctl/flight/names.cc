#include <fmt/format.h>

#include <algorithm>

#include "tools/ctl/flight/words.h"

namespace gradring::tools {

FlightNames::FlightNames(const std::vector<FlightEntry>& entries) {
  for (const FlightEntry& entry : entries) {
    const FlightEvent& event = entry.event;
    if (entry.name.empty()) continue;
    if (event.kind == FlightKind::kJobProposed || event.kind == FlightKind::kViewEntered)
      jobs_[event.job] = entry.name;
    if (event.kind == FlightKind::kJobMember) members_[{event.job, event.index}] = entry.name;
    if (event.kind == FlightKind::kOpSubmitted) ops_[{event.job, event.key.space}] = entry.name;
  }
}

std::string FlightNames::job(const JobPrefix& job) const {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? "" : it->second;
}

std::string FlightNames::member(const JobPrefix& job, uint32_t index) const {
  const auto it = members_.find({job, index});
  return it == members_.end() ? fmt::format("member {}", index) : it->second;
}

std::string FlightNames::op(const JobPrefix& job, const OpKey& key) const {
  const auto it = ops_.find({job, key.space});
  if (key.space == 0 || it == ops_.end()) return describe(key);
  return fmt::format("{} use {}", it->second, key.sequence);
}

bool FlightNames::is_about(const FlightEntry& entry, std::string_view word) const {
  // A trainer that joins has no incarnation yet.
  if (entry.event.kind == FlightKind::kTrainerJoins) return entry.name == word;
  if (entry.event.job == JobPrefix{}) return false;
  return job(entry.event.job) == word || word.starts_with(hex(entry.event.job));
}

std::vector<std::string> FlightNames::jobs() const {
  std::vector<std::string> names;
  for (const auto& [prefix, name] : jobs_) names.push_back(name);
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace gradring::tools
