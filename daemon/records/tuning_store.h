#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/tuning.h"

namespace gradring::daemon {

// What a table was measured on: for others it says nothing.
struct TunedFor {
  struct Node {
    std::string name;
    uint32_t ranks = 0;
    uint32_t lanes = 0;  // that carry slices to it; 0: ourselves

    bool operator==(const Node&) const = default;
  };
  std::vector<Node> nodes;  // in ring order
  uint32_t slice_bytes = 0;
  std::string version;  // of gradring and its transport

  bool operator==(const TunedFor&) const = default;
};

struct KnownTable {
  core::Tuning table;           // nothing in it is tried
  std::set<uint32_t> searched;  // classes of which nothing is left to try

  bool operator==(const KnownTable&) const = default;
};

// Tables that were found, in a file of text that people can read. Nothing depends on it: what
// cannot be read is as if it were not there, and what cannot be written is a warning. One thread;
// several daemons may have the same file.
class TuningStore {
 public:
  explicit TuningStore(std::string path) : path_(std::move(path)) {}

  std::optional<KnownTable> find(const TunedFor& on) const;
  // In place of what was known; the file is never seen half written. False: another daemon writes
  // it just now, and nothing was kept.
  bool keep(const TunedFor& on, const KnownTable& known);

 private:
  const std::string path_;
};

}  // namespace gradring::daemon
