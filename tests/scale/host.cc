#include "tests/scale/host.h"

#include <utility>

namespace gradring::scale {
namespace {

double bytes_per_ns(const Machine& machine) { return machine.lane_gbit / 8 * machine.payload_part; }

// Of others' segments that lie in the card and its queue when a small frame comes.
constexpr double kSegmentsAhead = 64 << 10;

}  // namespace

Host::Host(const Machine& machine, std::shared_ptr<Processors> processors)
    : machine_(machine),
      processors_(std::move(processors)),
      out_(static_cast<size_t>(machine.lanes), Line(bytes_per_ns(machine), machine.burst_bytes)),
      in_(out_),
      memory_(machine.memory_gbs, 0) {}

Time Host::leave(Time now, uint32_t to, uint32_t lane, double bytes, bool payload) {
  Line& line = out_[lane];
  const Time waits = line.backlog(now);
  const Time in_turn = line.pass(now, bytes);
  Time& last = last_left_[uint64_t{to} << 32 | lane];
  if (payload) return last = in_turn;
  const Time ahead = std::min(waits, line_time(kSegmentsAhead));
  return std::max(last, now + ahead);
}

double Host::queued_bytes(Time now) const {
  return static_cast<double>(out_.front().backlog(now)) * bytes_per_ns(machine_);
}

Time Host::line_time(double bytes) const { return took(bytes, bytes_per_ns(machine_)); }

Time Host::arrive(Time began, Time left, uint32_t lane, double bytes) {
  return std::max(left, in_[lane].pass(began, bytes)) + us(machine_.latency_us);
}

Time Host::use_memory(Time now, Time lasts, double bytes) {
  return std::max(now + lasts, memory_.pass(now, bytes));
}

}  // namespace gradring::scale
