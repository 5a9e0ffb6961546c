#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "daemon/fd.h"
#include "daemon/flight/ring.h"
#include "proto/status.h"

namespace gradring::daemon {

// A file of proto/flight.h with a ring for each thread, mapped. All of its blocks are taken at the
// start, so that a disk that fills up later cannot kill the daemon by SIGBUS.
class FlightFile {
 public:
  FlightFile() = default;
  FlightFile(const FlightFile&) = delete;
  FlightFile& operator=(const FlightFile&) = delete;
  ~FlightFile();

  // In the place of whatever is there. Once. After an error there is none.
  Status make(const std::string& path, const std::string& node, uint64_t bytes_per_ring);

  // A clock that is set later, as a machine does that asks for the time when its network is there,
  // is told to readers within a pulse.
  void follow_wall_clock();

  bool there() const { return base_ != nullptr; }
  uint64_t bytes() const { return bytes_; }
  FlightSlots* control() { return &control_; }
  FlightSlots* data() { return &data_; }

  // False: there is not so much. Any thread, also while others write.
  bool read_at(uint64_t offset, std::span<std::byte> to) const;

 private:
  Fd file_;
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
  FlightSlots control_;
  FlightSlots data_;
};

}  // namespace gradring::daemon
