#pragma once

#include <cstdint>
#include <string>

#include "daemon/core/time.h"
#include "daemon/flight/file.h"
#include "daemon/flight/ring.h"
#include "proto/status.h"

namespace gradring::daemon {

// What each thread writes down, in the runtime directory: always in the last megabytes of the file
// `flight-recorder`, and while somebody traces also in the larger `trace`. What is in them stays
// there however the process ends.
//
// The recorder's file is made beside that of the life before and takes its place in publish(), once
// the daemon is known to start: else each failed attempt would push out what is to be read.
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

  // Control thread only, again and again.
  void follow_wall_clock();

  // ---- traces; control thread only ----
  // The control thread's ring traces from now on; the data thread has to be told to use
  // trace_file()->data(). The file stays until the daemon ends, and the next trace goes on in it.
  Status begin_trace(uint64_t bytes_per_ring);
  void end_trace();
  bool tracing() const { return tracing_; }
  core::Time trace_since() const { return trace_since_; }
  core::Time trace_ended() const { return trace_ended_; }  // the last one; 0: none has

  // Null where there is none.
  const FlightFile* file() const { return file_.there() ? &file_ : nullptr; }
  FlightFile* trace_file() { return trace_.there() ? &trace_ : nullptr; }

 private:
  std::string directory_;
  std::string node_;
  FlightFile file_;
  FlightFile trace_;
  bool published_ = false;
  bool tracing_ = false;
  core::Time trace_since_ = 0;
  core::Time trace_ended_ = 0;
  FlightRing control_;
  FlightRing data_;
};

}  // namespace gradring::daemon
