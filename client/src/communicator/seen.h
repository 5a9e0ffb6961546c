#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "proto/wire.h"

namespace gradring::client {

// The tickets whose ends we took in and a daemon that restarts must not tell again: it forgets them
// when it reads Submit.seen. A Submit may be lost with the daemon, so a ticket is kept until a
// later end proves that its Submit was read, and else told to the next life.
//
// There are never more than ops were open at one time, and as many again.
class Seen {
 public:
  // In one message; the daemon takes no longer ones than 256 KiB, and a ticket may take ten bytes.
  static constexpr size_t kAtOnce = 4096;

  void add(uint64_t ticket) { untold_.push_back(ticket); }

  bool any() const { return !untold_.empty(); }
  size_t untold() const { return untold_.size(); }

  // Tells what is untold, as far as it fits, in the Submit of this number. Numbers rise.
  void tell(uint64_t number, wire::Submit* submit) {
    const size_t count = std::min(untold_.size(), kAtOnce);
    for (size_t i = 0; i < count; ++i) {
      submit->add_seen(untold_.front());
      told_.push_back({number, untold_.front()});
      untold_.pop_front();
    }
  }

  // All Submits up to this number were read.
  void prove(uint64_t number) {
    while (!told_.empty() && told_.front().number <= number) told_.pop_front();
  }

  // What is not proven to be read counts as untold.
  void take_back() {
    for (; !told_.empty(); told_.pop_back()) untold_.push_front(told_.back().ticket);
  }

 private:
  struct Told {
    uint64_t number = 0;
    uint64_t ticket = 0;
  };

  std::deque<uint64_t> untold_;
  std::deque<Told> told_;
};

}  // namespace gradring::client
