#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "daemon/core/time.h"
#include "daemon/keys.h"

namespace gradring::daemon {

inline constexpr const char* kZapDomain = "gradring";

// Answers libzmq's question, for each new connection of a peer, whether its CURVE key is one of
// ours (RFC 27). The connection's messages then carry that key as their User-Id: a connection may
// outlive the line that let it in. Control thread only.
class KeyGuard {
 public:
  // Must exist before the guarded socket is bound.
  KeyGuard(zmq::context_t* context, std::vector<AllowedKey> keys);

  // Returns the nodes whose key of before is not allowed any more.
  std::set<std::string> set_keys(std::vector<AllowedKey> keys);
  // Null when no node is known by that address.
  const AllowedKey* by_address(const std::string& address) const;
  const AllowedKey* by_node(const std::string& node) const;
  const AllowedKey* by_key(const std::string& public_key) const;

  // Answers what waits; returns how many questions that were.
  int do_work(core::Time now);
  void* socket() { return socket_.handle(); }

 private:
  void tell_of_stranger(const std::string& address, core::Time now);

  std::vector<AllowedKey> keys_;
  zmq::socket_t socket_;
  std::map<std::string, core::Time> told_;  // to the log, of strangers, by address
};

}  // namespace gradring::daemon
