#pragma once

#include <memory>
#include <string>
#include <tl/expected.hpp>

#include "daemon/metrics/board.h"
#include "proto/status.h"

namespace gradring::daemon::metrics {

// Serves what hangs on the board at http://ADDRESS:PORT/metrics, on threads of its own, until it is
// destroyed. A scraper that is slow, says nothing or says nonsense costs one of these threads for a
// few seconds, and the daemon nothing.
class Server {
 public:
  // `address`: ADDRESS:PORT, numeric. `board` outlives the server. A refusal says what is wrong
  // with the address.
  static tl::expected<std::unique_ptr<Server>, Status> start(const std::string& address,
                                                             const Board* board);
  // What start() would say of the address, wherever its port is in use or not; empty: nothing.
  static std::string fault_of(const std::string& address);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

 private:
  struct Parts;
  explicit Server(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace gradring::daemon::metrics
