#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "proto/flight.h"
#include "proto/status.h"

namespace gradring::tools {

// An event together with the text that followed it.
struct FlightEntry {
  FlightEvent event;
  uint32_t ring = 0;
  std::string name{};
  std::string words{};
};

// All that a file of proto/flight.h still holds of one life of a daemon.
struct FlightLife {
  FlightHeader header;
  std::vector<FlightEntry> entries;  // of all rings, oldest first
  uint64_t overwritten = 0;          // events that were there once

  // Of the newest event; of the start if there is none.
  int64_t last_time() const;
};

// Fills `to` with what lies at an offset; false when it is not there.
using ReadAt = std::function<bool(uint64_t offset, std::span<std::byte> to)>;

// Believes nothing of what it reads, and reads while the daemon writes: an event that is not whole
// is left out. `at_rest`: nobody writes any more, so one look is enough and not three. The error is
// a clause about "it", the file.
tl::expected<FlightLife, std::string> read_flight(uint64_t file_bytes, const ReadAt& read_at,
                                                  bool at_rest = false);

// Errors: UNAVAILABLE if there is no such file, PERMISSION_DENIED, INTERNAL if it cannot be a
// recorder's.
tl::expected<FlightLife, Status> read_flight_file(const std::string& path);

}  // namespace gradring::tools
