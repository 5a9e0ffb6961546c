#include "tools/run/outlet.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace gradring::tools {
namespace {

constexpr int kPatienceMs = 1000;

}  // namespace

void Outlet::write(std::string_view bytes) {
  while (!bytes.empty() && !gone_) {
    pollfd fds[] = {{fd_, POLLOUT, 0}, {hurry_, POLLIN, 0}};
    const int ready = poll(fds, in_haste_ ? 1 : 2, in_haste_ ? kPatienceMs : -1);
    if (ready < 0 && errno == EINTR) continue;
    if (fds[0].revents == 0) {
      gone_ = in_haste_;
      make_haste();
      continue;
    }
    // A pipe that has room takes so much at once.
    const ssize_t written = ::write(fd_, bytes.data(), std::min<size_t>(bytes.size(), PIPE_BUF));
    if (written > 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR && errno != EAGAIN) {  // somebody else may keep it from blocking
      gone_ = true;
      if (errno != EPIPE) fault_ = errno;
    }
  }
}

}  // namespace gradring::tools
