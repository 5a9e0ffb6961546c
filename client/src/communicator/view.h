#pragma once

#include <gradring/gradring.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "proto/wire.h"

namespace gradring::client {

// What a trainer needs to know of its job's view.
struct View {
  uint64_t epoch = 0;
  uint64_t grown = 0;  // the epoch in which ranks came in last
  bool closed = false;
  std::vector<uint32_t> ranks;  // that are there, ascending
  uint32_t oldest = 0;          // the lowest of those who are there longest
  uint64_t since = 0;           // since when our own rank is there
  int32_t local_size = 0;       // ranks on our own node
  int32_t local_position = -1;  // our own rank's place among those
  std::string explanation;
  std::string incarnation;  // of the job

  uint32_t size() const { return static_cast<uint32_t>(ranks.size()); }
  // Of a rank that is there.
  uint32_t position_of(uint32_t rank) const;
};

// As `rank` on `node` sees it; the error says what is wrong with it.
tl::expected<View, std::string> view_from(const wire::View& from, uint32_t rank,
                                          const std::string& node);

// Writes as much of it as the caller's structure has room for; a null one is allowed.
void write_view(const View& view, uint32_t rank, gradring_view* to);

// The views of late: an op may end with the epoch of an older one than the newest we were told.
class Views {
 public:
  // More than any op lives through; each may list thousands of ranks.
  static constexpr size_t kKept = 8;

  void add(View view);
  // There is one once the job was joined.
  const View& newest() const { return views_.rbegin()->second; }
  // The view in which something of this epoch ended; of one that was not told, the nearest.
  const View& at(uint64_t epoch) const;
  // Null: of no kept view.
  const View* find(uint64_t epoch) const;
  bool empty() const { return views_.empty(); }

 private:
  std::map<uint64_t, View> views_;  // by epoch
};

}  // namespace gradring::client
