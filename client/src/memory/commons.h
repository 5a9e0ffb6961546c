#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "client/src/clock.h"
#include "client/src/gpu/gpu_memory.h"
#include "client/src/memory/mapping.h"

namespace gradring::client {

// A segment that all communicators of a family may name: its place, and whose it is at the daemon.
struct Common {
  uint64_t number = 0;  // never used again
  std::byte* base = nullptr;
  uint64_t bytes = 0;
  uint64_t lead = 0;  // as a Segment has it
  std::shared_ptr<const Mapping> mapping;
  std::shared_ptr<const GpuMemory> gpu;
  std::shared_ptr<std::atomic<uint64_t>> lent_by_borrowers;  // as a Segment has it
  uint64_t session = 0;
  std::string secret;
  uint64_t segment = 0;
  bool opened = false;
};

// What a communicator has in common with all groups made from it and from them: memory, and
// patience with the daemon. Thread-safe; its lock is never held while another is taken.
class Commons {
 public:
  void offer(Common common);
  // No longer; those who have borrowed it give it back when they look next.
  void withdraw(uint64_t session, uint64_t segment);
  void withdraw_all(uint64_t session);

  // Where this lies; nothing if it is nobody's.
  std::optional<Common> around(const void* start) const;
  bool offers(uint64_t number) const;
  // Changes with every withdrawal.
  uint64_t withdrawals() const { return withdrawals_.load(std::memory_order_acquire); }

  // Until when one of them waits for the daemon to confirm that it leaves: not as long as it likes
  // where others have waited in vain just before.
  TimePoint leave_by(TimePoint deadline) const;
  void left(TimePoint begun, bool confirmed);

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, Common> by_number_;
  // And by number: several communicators may have registered the same memory.
  std::set<std::pair<const std::byte*, uint64_t>> by_base_;
  uint64_t last_number_ = 0;
  std::atomic<uint64_t> withdrawals_{0};
  std::optional<TimePoint> leaving_in_vain_since_;
};

}  // namespace gradring::client
