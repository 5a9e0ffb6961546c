#include "daemon/metrics/server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/clock.h"
#include "daemon/config.h"
#include "daemon/fd.h"
#include "daemon/metrics/families.h"

namespace gradring::daemon::metrics {
namespace {

// Bounds of the HTTP server. Prometheus asks every few seconds with one connection; a few more
// threads let a person look while another connection says nothing.
std::vector<std::string> options_for(const std::string& address) {
  return {"listening_ports",    address,  //
          "num_threads",        "4",      //
          "connection_queue",   "16",     // accepted and not yet looked at
          "listen_backlog",     "16",     //
          "request_timeout_ms", "2000",   // for reading a request, and for writing each part
          "enable_keep_alive",  "no",     // a connection that is kept is a thread that is kept
          "max_request_size",   "8192"};
}

class Reader final : public prometheus::Collectable {
 public:
  explicit Reader(const Board* board) : board_(board) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    const auto snapshot = board_->look();
    if (snapshot == nullptr) return {};
    return families_of(*snapshot, monotonic_now());
  }

 private:
  const Board* const board_;
};

using AddressInfo = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Null where it is no numeric address.
AddressInfo info_of(const std::string& address) {
  const auto where = parse_host_port(address);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const bool is_one = where && getaddrinfo(where->host.c_str(), std::to_string(where->port).c_str(),
                                           &hints, &found) == 0;
  return {is_one ? found : nullptr, &freeaddrinfo};
}

void knock(const addrinfo& info) {
  const Fd door(socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!door) return;
  static_cast<void>(connect(door.get(), info.ai_addr, info.ai_addrlen));  // nobody has to open
}

// Debian's civetweb is built without.
constexpr const char* kNoIpv6 = "the HTTP server here has no IPv6; write an IPv4 address";

// The library does not tell why it cannot listen, so the kernel is asked once more.
std::string why_not(const std::string& address) {
  const AddressInfo info = info_of(address);
  if (!info) return "it is no numeric address";
  const Fd probe(socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(probe.get(), info->ai_addr, info->ai_addrlen) == 0 && listen(probe.get(), 1) == 0) {
    if (info->ai_family == AF_INET6) return kNoIpv6;
    return "the HTTP server does not start";
  }
  return errno == EADDRINUSE ? "it is in use; choose another port" : std::strerror(errno);
}

std::string cannot_listen(const std::string& address, const std::string& why) {
  return fmt::format("metrics: cannot listen at {}: {}", address, why);
}

bool has_ipv6() {
  try {
    prometheus::Exposer(options_for("[::1]:0"));
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

}  // namespace

std::string Server::fault_of(const std::string& address) {
  const AddressInfo info = info_of(address);
  if (!info) return "";
  const Fd probe(socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // Any port: the daemon that is asked about may be there already.
  auto* const v4 = reinterpret_cast<sockaddr_in*>(info->ai_addr);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(info->ai_addr);
  (info->ai_family == AF_INET6 ? v6->sin6_port : v4->sin_port) = 0;
  if (probe.get() < 0 || bind(probe.get(), info->ai_addr, info->ai_addrlen) != 0) {
    return cannot_listen(address, std::strerror(errno));
  }
  return info->ai_family == AF_INET6 && !has_ipv6() ? cannot_listen(address, kNoIpv6) : "";
}

struct Server::Parts {
  explicit Parts(const std::string& address)
      : info(info_of(address)), exposer(std::in_place, options_for(address)) {}
  // The reader goes first when all goes: the server knows it by a weak pointer.
  void end() {
    reader.reset();
    exposer.reset();
  }
  const AddressInfo info;
  std::optional<prometheus::Exposer> exposer;
  std::shared_ptr<prometheus::Collectable> reader;
};

Server::Server(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

// That it is to end the library's listener sees when somebody comes, or after up to two seconds,
// for which the daemon would keep its folder and its ports. So somebody comes.
Server::~Server() {
  std::atomic<bool> over = false;
  std::thread visitor([&over, info = parts_->info.get()] {
    while (!over && info != nullptr) {
      knock(*info);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  parts_->end();
  over = true;
  visitor.join();
}

tl::expected<std::unique_ptr<Server>, Status> Server::start(const std::string& address,
                                                            const Board* board) {
  try {
    auto parts = std::make_unique<Parts>(address);
    parts->reader = std::make_shared<Reader>(board);
    parts->exposer->RegisterCollectable(parts->reader);
    return std::unique_ptr<Server>(new Server(std::move(parts)));
  } catch (const std::exception&) {  // of the library, which says no more than that it failed
    return tl::unexpected(Status(Code::kUnavailable, cannot_listen(address, why_not(address))));
  }
}

}  // namespace gradring::daemon::metrics
