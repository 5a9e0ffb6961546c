#include "daemon/control/queries/flight_queries.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <string>

#include "daemon/control/door/rights.h"

namespace gradring::daemon {
namespace {

constexpr uint64_t kPartBytesMax = 256 << 10;  // as query.proto says

}  // namespace

FlightQueries::FlightQueries(const Config& config, const Parts& parts)
    : node_(config.node), trace_size_(config.trace_size), parts_(parts) {}

// It names everybody's jobs, programs and processes.
Status FlightQueries::refusal_for(uint32_t uid) const {
  if (may_see_all(uid, *parts_.membership)) return {};
  return {
      Code::kPermissionDenied,
      fmt::format("what node {} writes down tells of jobs that are not uid {}'s: ask as root, or "
                  "as the daemon's user",
                  node_, uid)};
}

wire::FlightReport FlightQueries::report() const {
  wire::FlightReport report;
  report.set_tracing(parts_.recorder->tracing());
  report.set_trace_since(parts_.recorder->trace_since());
  report.set_trace_ended(parts_.recorder->trace_ended());
  return report;
}

FlightQueries::Answer FlightQueries::read(uint32_t uid, const wire::FlightPart& part) const {
  if (Status refused = refusal_for(uid); !refused.ok()) return tl::unexpected(refused);
  const FlightFile* const file = parts_.recorder == nullptr ? nullptr
                                 : part.trace()             ? parts_.recorder->trace_file()
                                                            : parts_.recorder->file();
  if (file == nullptr) {
    return tl::unexpected(Status(
        Code::kNotFound,
        part.trace()
            ? fmt::format("node {} has no trace: \"gradringctl trace start\" begins one", node_)
            : fmt::format("node {} has no flight recorder: its flight-recorder-size is 0, or "
                          "its log says why",
                          node_)));
  }
  wire::FlightReport answer = report();
  answer.set_file_bytes(file->bytes());
  if (part.bytes() == 0) return answer;
  const bool good = part.bytes() <= kPartBytesMax && part.offset() <= file->bytes() &&
                    part.bytes() <= file->bytes() - part.offset();
  std::string data(good ? part.bytes() : 0, '\0');
  if (!good || !file->read_at(part.offset(), std::as_writable_bytes(std::span(data)))) {
    return tl::unexpected(
        Status(Code::kInvalidArgument,
               fmt::format("{} bytes at {} are not within the {} bytes there are, or "
                           "more than {} at once",
                           part.bytes(), part.offset(), file->bytes(), kPartBytesMax)));
  }
  answer.set_data(std::move(data));
  return answer;
}

FlightQueries::Answer FlightQueries::trace(uint32_t uid, bool on) {
  if (Status refused = refusal_for(uid); !refused.ok()) return tl::unexpected(refused);
  if (parts_.recorder == nullptr || trace_size_ == 0) {
    return tl::unexpected(Status(
        Code::kNotFound, fmt::format("node {} makes no traces: its trace-size is 0", node_)));
  }
  const bool before = parts_.recorder->tracing();
  if (on && !before) {
    if (Status made = parts_.recorder->begin_trace(trace_size_); !made.ok())
      return tl::unexpected(Status(made.code(), fmt::format("node {} {}", node_, made.message())));
    parts_.jobs->record_all();  // else nobody could tell their names
    parts_.commands->post(SetTrace{parts_.recorder->trace_file()->data()});
  } else if (!on && before) {
    parts_.recorder->end_trace();
    parts_.commands->post(SetTrace{});
  }
  if (on != before) spdlog::info("uid {} {} a trace", uid, on ? "begins" : "ends");
  wire::FlightReport answer = report();
  answer.set_was_tracing(before);
  if (const FlightFile* file = parts_.recorder->trace_file()) answer.set_file_bytes(file->bytes());
  return answer;
}

}  // namespace gradring::daemon
