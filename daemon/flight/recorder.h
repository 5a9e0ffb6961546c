#pragma once

#include <cstddef>
#include <string>

#include "daemon/flight/ring.h"
#include "proto/status.h"

namespace gradring::daemon {

// The file of proto/flight.h in the runtime directory, mapped and written by this process: what is
// in it stays there however the process ends. All of its blocks are taken at the start, so that a
// disk that fills up later cannot kill the daemon by SIGBUS.
//
// It is made beside the file of the life before and takes that one's place in publish(), once the
// daemon is known to start: else each failed attempt would push out what is to be read.
class FlightRecorder {
 public:
  FlightRecorder() = default;
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;
  ~FlightRecorder();

  // `bytes_per_ring` 0: records nothing. After an error, too, the rings are there and record
  // nothing. The caller holds the lock of the directory.
  Status open(const std::string& directory, const std::string& node, uint64_t bytes_per_ring);
  // The file of the life before is kept as flight-recorder.1.
  Status publish();

  FlightRing* control() { return &control_; }
  FlightRing* data() { return &data_; }

 private:
  std::string directory_;
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
  bool published_ = false;
  FlightRing control_;
  FlightRing data_;
};

}  // namespace gradring::daemon
