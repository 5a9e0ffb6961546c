#include "daemon/flight/recorder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace gradring::daemon {
namespace {

std::string unpublished(const std::string& directory) {
  return directory + "/" + kFlightFile + ".new";
}

}  // namespace

Status FlightRecorder::open(const std::string& directory, const std::string& node,
                            uint64_t bytes_per_ring) {
  directory_ = directory;
  node_ = node;
  // Of the life before, and of use to nobody.
  unlink((directory + "/" + kTraceFile).c_str());
  if (bytes_per_ring < kFlightEventBytes) return {};
  Status made = file_.make(unpublished(directory), node, bytes_per_ring);
  if (!made.ok()) return made;
  control_ = FlightRing(*file_.control());
  data_ = FlightRing(*file_.data());
  return {};
}

Status FlightRecorder::publish() {
  const std::string path = directory_ + "/" + kFlightFile;
  const std::string before = directory_ + "/" + kFlightFileBefore;
  const bool kept = rename(path.c_str(), before.c_str()) == 0 || errno == ENOENT;
  if (!kept || (file_.there() && rename(unpublished(directory_).c_str(), path.c_str()) != 0)) {
    return {Code::kInternal,
            fmt::format("cannot put {} into its place: {}", path, std::strerror(errno))};
  }
  published_ = true;
  return {};
}

void FlightRecorder::follow_wall_clock() {
  file_.follow_wall_clock();
  trace_.follow_wall_clock();
}

Status FlightRecorder::begin_trace(uint64_t bytes_per_ring) {
  if (!trace_.there()) {
    Status made = trace_.make(directory_ + "/" + kTraceFile, node_, bytes_per_ring);
    if (!made.ok()) return made;
  }
  if (!tracing_) trace_since_ = monotonic_now();
  tracing_ = true;
  control_.trace(trace_.control());
  return {};
}

void FlightRecorder::end_trace() {
  if (tracing_) trace_ended_ = monotonic_now();
  tracing_ = false;
  control_.trace(nullptr);
}

FlightRecorder::~FlightRecorder() {
  if (file_.there() && !published_) unlink(unpublished(directory_).c_str());
  if (trace_.there()) unlink((directory_ + "/" + kTraceFile).c_str());
}

}  // namespace gradring::daemon
