#include "client/src/session/runtime_dir.h"

#include <fmt/format.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "proto/shell_word.h"

namespace gradring::client {

std::string attach_path(const std::string& runtime_dir) { return runtime_dir + "/attach.sock"; }
std::string control_path(const std::string& runtime_dir) { return runtime_dir + "/control.sock"; }

std::string start_command(const std::string& runtime_dir) {
  if (runtime_dir == kDefaultRuntimeDir) return "systemctl start gradringd";
  return "gradringd --runtime-dir " + shell_word(runtime_dir);
}

Status check_length(const std::string& runtime_dir) {
  constexpr size_t kPathMax = sizeof(sockaddr_un::sun_path) - 1;
  const size_t length = control_path(runtime_dir).size();
  if (length <= kPathMax) return {};
  return {
      Code::kInvalidArgument,
      fmt::format("runtime_dir '{}' is too long: the socket path in it has {} bytes, the kernel "
                  "allows {}; use a shorter directory",
                  runtime_dir, length, kPathMax)};
}

Status unreachable(const std::string& runtime_dir, const std::string& path, int error) {
  const std::string start = start_command(runtime_dir);
  std::string why;
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      why = fmt::format("no such file; start the daemon with `{}`, or set GRADRING_RUNTIME_DIR",
                        start);
      break;
    case EACCES:
    case EPERM:
      why = fmt::format(
          "permission denied; ask for membership of the sockets' group, which `ls -l {}` names "
          "(the "
          "daemon there, if it does not run yet, starts with `{}`)",
          shell_word(runtime_dir), start);
      break;
    case ECONNREFUSED:
      why = fmt::format(
          "connection refused: the file is left from a daemon that ended; start it again with `{}`",
          start);
      break;
    case EAGAIN:
    case ETIMEDOUT:
      why = fmt::format(
          "the daemon does not take connections (overloaded or stopped); look at it with "
          "`gradringctl --runtime-dir {} status`, or restart it with `{}`",
          shell_word(runtime_dir), start);
      break;
    default:
      why = fmt::format("{}; start the daemon with `{}`", std::strerror(error), start);
  }
  return {Code::kUnavailable, fmt::format("no gradring daemon at {}: {}", path, why)};
}

}  // namespace gradring::client
