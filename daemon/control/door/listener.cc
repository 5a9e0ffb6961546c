#include "daemon/control/door/listener.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gradring::daemon {
namespace {

// Those that come at once when a job starts, or in the second in which a daemon restarts.
constexpr int kBacklog = 1024;

std::string name_of(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

// Does the file lead to this socket? It may be gone, or another daemon may have been here in the
// meantime. Only connecting tells; that connection is closed unused, as by a trainer that died.
bool leads_to(int listener, const std::string& path, int type) {
  const sockaddr_un address = address_of(path);
  const Fd probe(socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!probe ||
      (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
       errno != EAGAIN)) {  // EAGAIN: so many wait that one more may not
    return false;
  }
  pollfd waiting{listener, POLLIN, 0};
  return poll(&waiting, 1, 0) == 1;
}

}  // namespace

tl::expected<Fd, Status> open_listener(const std::string& path, int type, FdStore* store) {
  const std::string name = name_of(path);
  Fd inherited = store->take(name);
  if (inherited && sd_is_socket_unix(inherited.get(), type, /*listening=*/1, path.c_str(), 0) > 0 &&
      leads_to(inherited.get(), path, type)) {
    spdlog::debug("goes on listening at {}", path);
    return inherited;
  }
  inherited.reset();
  unlink(path.c_str());
  const sockaddr_un address = address_of(path);
  Fd listener(socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener.get(), kBacklog) != 0) {
    return tl::unexpected(
        Status(Code::kUnavailable, fmt::format("cannot open {}: {}", path, std::strerror(errno))));
  }
  if (!store->somebody_keeps()) return listener;
  const Status kept = store->keep(name, listener.get());
  if (!kept.ok()) spdlog::warn("{} will not outlive a restart: {}", path, kept.message());
  return listener;
}

void remove_listener(const std::string& path, FdStore* store) {
  unlink(path.c_str());
  store->forget(name_of(path));
}

}  // namespace gradring::daemon
