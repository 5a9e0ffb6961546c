#include "client/src/session/rings.h"

#include <sched.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace gradring::client {
namespace {

// About as long as falling asleep and being woken take.
constexpr auto kLookOn = std::chrono::microseconds(50);
// Whoever waited longer than this the last time does not look on: the processor is better used by
// those it waits for. To be woken takes part of it.
constexpr auto kWorthLooking = 2 * kLookOn;
constexpr int kPausesPerYield = 32;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

RingPair* pair_in(const Mapping& mapping) { return reinterpret_cast<RingPair*>(mapping.data()); }

}  // namespace

tl::expected<std::shared_ptr<Rings>, Status> Rings::of(AttachPacket packet) {
  const uint64_t bytes = packet.reply.rings().bytes();
  if (packet.fds.size() != 3 || bytes < sizeof(RingPair)) {
    return tl::unexpected(Status(Code::kInternal, "the daemon sent rings without their memory"));
  }
  auto mapping = Mapping::of(packet.fds[0], bytes);
  if (!mapping) return tl::unexpected(mapping.error());
  return std::make_shared<Rings>(std::move(*mapping), std::move(packet.fds[1]),
                                 std::move(packet.fds[2]));
}

Rings::Rings(Mapping mapping, UniqueFd submitted, UniqueFd ended)
    : mapping_(std::move(mapping)),
      submitted_(std::move(submitted)),
      ended_(std::move(ended)),
      submissions_(&pair_in(mapping_)->submissions),
      ends_(&pair_in(mapping_)->ends),
      words_(&pair_in(mapping_)->words) {}

void Rings::put(const RingSubmission& submission) {
  submissions_.put(submission);
  if (submissions_.must_wake()) eventfd_write(submitted_.get(), 1);
}

bool Rings::look_on(TimePoint until) {
  began_ = Clock::now();
  if (waited_ > kWorthLooking) return ends_.any();
  const TimePoint end = std::min(until, began_ + kLookOn);
  do {
    for (int i = 0; i < kPausesPerYield; ++i) {
      if (ends_.any()) return true;
      pause();
    }
    sched_yield();
  } while (Clock::now() < end);
  return ends_.any();
}

void Rings::rise(bool rung) {
  ends_.rise();
  waited_ = Clock::now() - began_;
  if (!rung) return;
  eventfd_t count = 0;
  eventfd_read(ended_.get(), &count);
}

void Rings::close_in_child() {
  submitted_.reset();
  ended_.reset();
}

}  // namespace gradring::client
