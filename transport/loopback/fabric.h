#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "transport/transport.h"

namespace gradring::transport {

// What goes wrong on one direction of a link. Decisions are drawn from a generator seeded by the
// fabric's seed and the two names, one message after the other, so a seed repeats a run as long as
// the messages of this direction come in the same order.
struct LinkFaults {
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  uint64_t break_after = kNever;  // the link breaks when so many messages were accepted from now on
  bool black_hole = false;        // accepted, never delivered, nobody is told
  uint32_t delay_turns = 0;       // of the receiver: calls of its progress()
  double duplicate = 0;           // chance of a message to arrive twice, 0 .. 1
  double reorder = 0;             // chance to arrive late, behind what is sent after it
  double corrupt = 0;             // chance that one byte of the payload is flipped
};

// A network inside one process. It joins any number of transports, each owned by a thread of its
// own or all by one; they are complete bodies of the interface and pass the suite that UCX passes.
//
// As over UCX, a connection carries one direction: connect() opens the way to the peer,
// disconnect() closes that way alone and does not tell the peer. The death of a node breaks every
// way to it. Payloads are copied by send(), so no thread ever reads another one's memory; a send
// completes when the receiver has taken the message.
//
// The fault verbs may be called from any thread. The fabric may be destroyed before its transports.
class Fabric {
 public:
  explicit Fabric(uint64_t seed = 0);

  // A transport under a name that no living member of the fabric has. A transport that is destroyed
  // leaves, as the process it stands for would: connections to it are lost.
  std::unique_ptr<Transport> join(const std::string& name);

  // Replaces the faults of the direction. Messages already on the way keep theirs.
  void set_faults(const std::string& from, const std::string& to, const LinkFaults& faults);
  // Both directions, now: outstanding sends fail and both sides are told. connect() mends it.
  void break_link(const std::string& a, const std::string& b);
  // As kill -9 of its process: the others lose it; the transport itself falls silent, for ever.
  void kill(const std::string& node);
  // As a pulled cable or a stopped process: black holes from and to everybody, for ever.
  void stop(const std::string& node);

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace gradring::transport
