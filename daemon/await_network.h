#pragma once

#include <string>

#include "daemon/config.h"

namespace gradring::daemon {

struct NetworkWait {
  std::string missing;       // in words, for people; empty: all is there
  bool told_to_end = false;  // by SIGINT or SIGTERM, which are taken with it
};

// What listen, listen-also, metrics and net-device name may come up after services start: a card
// whose driver takes its time, IP over InfiniBand. A service manager ($NOTIFY_SOCKET) would not
// start again what calls its configuration wrong, so there this waits for it, for 30 s at most;
// with nobody to wait for it, not at all. Signals are to be blocked already.
NetworkWait await_network(const Config& config);

}  // namespace gradring::daemon
