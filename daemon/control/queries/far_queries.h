#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "daemon/control/queries/asker.h"
#include "daemon/core/time.h"

namespace gradring::daemon {

// What clients of this daemon want to know of a peer: asked there, and answered here, within two
// seconds in any case, or as much longer as the answer takes by its nature. Control thread only.
class FarQueries {
 public:
  FarQueries(const Answers& answers, Peers* peers) : answers_(answers), peers_(peers) {}

  // `takes`: until the peer can know the answer.
  void ask(const Asker& asker, const wire::Query& query, core::Time now, core::Time takes = 0);
  // A reply that nobody waits for any more is dropped.
  void on_reply(const std::string& node, const wire::Reply& reply, core::Time now);
  // Refuses what `node` was asked: it is gone, as `evidence` shows, for good or for a while.
  void peer_gone(const std::string& node, const std::string& evidence);

  // Refuses what has waited long enough.
  void tick(core::Time now);
  core::Time next_deadline() const;

 private:
  struct Pending {
    Asker asker;
    std::string node;
    core::Time asked = 0;
    core::Time patience = 0;
  };

  Answers answers_;
  Peers* peers_;
  std::map<uint64_t, Pending> pending_;
  uint64_t next_ = 1;
};

}  // namespace gradring::daemon
