#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "client/src/clock.h"
#include "client/src/session/rings.h"
#include "client/src/session/unique_fd.h"

namespace gradring::client {

// Lets many threads wait for messages of one connection without a thread of the library's own: like
// people in a hall with one newspaper, the first one reads, and calls out what concerns the others.
// When the reader has what it came for, another takes over.
//
// Everything is called with the owner's mutex held; only the sleep itself lets go of it. So other
// threads can send while somebody sleeps on the descriptors.
class Reader {
 public:
  // What is read.
  class Source {
   public:
    // Takes in and acts on all that has arrived, without blocking. True if any waiter may now be
    // done.
    virtual bool take_in() = 0;
    // The part of it that needs no system call: what lies in shared memory.
    virtual bool take_ends() = 0;
    // What to sleep on; -1 is skipped.
    virtual int control_fd() const = 0;
    virtual int attach_fd() const = 0;
    // Whether take_in has something for it, and found no room.
    virtual bool attach_full() const = 0;
    // Through which ends come without a message; may be none.
    virtual std::shared_ptr<Rings> rings() const = 0;
    // When take_in wants to be called even if nothing arrives.
    virtual TimePoint alarm() const = 0;

   protected:
    ~Source() = default;
  };

  explicit Reader(Source& source);

  bool valid() const { return wake_.valid(); }

  // What is looked at first: all there is, or what lies in shared memory. For an end that comes
  // there within some microseconds, two system calls are long.
  enum class Look : uint8_t { kAll, kEnds };

  // Until done() holds (true) or the deadline passes (false); looks at least once.
  template <class Done>
  bool wait_until(std::unique_lock<std::mutex>& lock, TimePoint deadline, Done done,
                  Look look = Look::kAll) {
    while (true) {
      look == Look::kAll ? take_in() : take_ends();
      bool is_done = done();
      const TimePoint now = Clock::now();
      // All, in the long run, also for whoever never has to sleep.
      if (!is_done && now >= std::min(deadline, looked_ + kLookEvery)) {
        take_in();
        is_done = done();
      }
      if (is_done || now >= deadline) {
        hand_over();
        return is_done;
      }
      if (reading_) {
        follow(lock, deadline);
      } else {
        lead(lock, deadline);
      }
    }
  }

  // Also needed after each send: sending may consume the sign that something has arrived.
  void take_in();
  // The part of it that lies in shared memory.
  void take_ends();

  // Makes every waiter look at its condition again.
  void wake_all();

  // In a forked child.
  void close() { wake_.reset(); }

 private:
  // The channels are looked at before each sleep; else this often.
  static constexpr auto kLookEvery = std::chrono::milliseconds(1);

  void lead(std::unique_lock<std::mutex>& lock, TimePoint deadline);
  void follow(std::unique_lock<std::mutex>& lock, TimePoint deadline);
  void hand_over();

  Source& source_;
  UniqueFd wake_;  // an eventfd: interrupts the sleep of the one who reads
  bool reading_ = false;
  int followers_ = 0;
  TimePoint looked_{};  // at all there is
  std::condition_variable changed_;
};

}  // namespace gradring::client
