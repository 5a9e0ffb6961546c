// What a daemon with one peer says of it.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "proto/wire.h"
#include "tests/daemon/raw_trainer.h"

namespace gradring::daemon {

inline wire::PeerReport peer_of(RawTrainer& asks) {
  wire::ClientMessage query;
  query.mutable_query()->set_what(wire::Query::PEERS);
  const wire::PeersReport report = asks.ask(query).reply().peers();
  return report.peers_size() == 1 ? report.peers(0) : wire::PeerReport();
}

// True as soon as the daemon's one peer is so; false after 10 s.
inline bool becomes(RawTrainer& asks, const std::function<bool(const wire::PeerReport&)>& so) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!so(peer_of(asks))) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}
inline bool becomes(RawTrainer& asks, const std::string& state) {
  return becomes(asks, [&state](const wire::PeerReport& peer) { return peer.state() == state; });
}

inline std::string at(int port) { return "127.0.0.1:" + std::to_string(port); }

}  // namespace gradring::daemon
