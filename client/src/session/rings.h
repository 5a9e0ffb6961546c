#pragma once

#include <memory>
#include <tl/expected.hpp>

#include "client/src/clock.h"
#include "client/src/memory/mapping.h"
#include "client/src/session/attach.h"
#include "proto/ring.h"

namespace gradring::client {

// Our end of the rings that we share with the daemon (proto/ring.h). put(), take() and what goes
// with them under the owner's mutex; look_on(), rest() and rise() by the one thread that is about
// to sleep for all (reader.h), without it.
class Rings {
 public:
  // The memory and the two bells that came with the packet. INTERNAL: they are not what the packet
  // says.
  static tl::expected<std::shared_ptr<Rings>, Status> of(AttachPacket packet);
  Rings(Mapping mapping, UniqueFd submitted, UniqueFd ended);

  uint64_t room() const { return submissions_.room(); }  // for entries
  // Requires room. Wakes the daemon if it sleeps.
  void put(const RingSubmission& submission);

  void tell_input_wait(uint64_t ns_ever) {
    words_->input_wait_ns.store(ns_ever, std::memory_order_relaxed);
  }

  bool any() const { return ends_.any(); }
  bool broken() const { return ends_.broken(); }
  RingEnd take() { return ends_.take(); }

  // Looks on for a moment, yielding the processor now and then, and not beyond `until`; not where
  // that was in vain the last time and for long. True if an end has come.
  bool look_on(TimePoint until);
  // False: there is an end, and it is no time to sleep. What to sleep on.
  bool rest() { return ends_.rest(); }
  int bell() const { return ended_.get(); }
  void rise(bool rung);

  void close_in_child();

 private:
  Mapping mapping_;
  UniqueFd submitted_;
  UniqueFd ended_;
  RingWriter<RingSubmission> submissions_;
  RingReader<RingEnd> ends_;
  TrainerWords* words_;
  TimePoint began_;              // to wait, the last time
  Clock::duration waited_ = {};  // that time, if it came to sleep
};

}  // namespace gradring::client
