#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "daemon/control/peers/peers.h"
#include "daemon/control/sessions/clients.h"

namespace gradring::daemon {

// Who wants to know something: a client of this daemon, or a peer on behalf of a client of its own.
struct Asker {
  std::string routing_id{};  // of the client
  std::string node{};        // of the peer; empty: it is a client
  uint64_t request = 0;      // the client's or the peer's own number
  uint32_t uid = 0;          // of the client, as the daemon that it asked knows it from the kernel
};

// Whether there is a place for one more question, where `all` wait for their answers, `own` of them
// this asker's user's, and `most` may. Nobody but root has more than half of the places, or the
// others could ask nothing.
Status place_for(const Asker& asker, size_t all, size_t own, size_t most);

// The way back to askers. What cannot be sent is dropped: who asked stops waiting by itself.
// Control thread only.
class Answers {
 public:
  Answers(Clients* clients, Peers* peers) : clients_(clients), peers_(peers) {}

  // Stamps the answer with the clock, if nobody has.
  void give(const Asker& asker, wire::QueryReply reply);
  void refuse(const Asker& asker, const Status& why);
  // What says nothing of this daemon's limits: another node's refusal, or one that is over in a
  // moment.
  void refuse_quietly(const Asker& asker, const Status& why);

 private:
  Clients* clients_;
  Peers* peers_;
};

}  // namespace gradring::daemon
