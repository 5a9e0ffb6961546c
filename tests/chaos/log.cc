#include "tests/chaos/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>

namespace gradring::chaos {

double now() {
  const std::chrono::duration<double> since = std::chrono::steady_clock::now().time_since_epoch();
  return since.count();
}

Log::Log(const std::string& path)
    : fd_(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {
  if (fd_ < 0) throw std::runtime_error("cannot create " + path);
}

Log::~Log() { close(fd_); }

void Log::line(char kind, const std::string& fields) {
  const std::string text = fmt::format("{} {:.6f} {}\n", kind, now(), fields);
  // A record that is missing would be taken for an op that never ended.
  if (write(fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
}

}  // namespace gradring::chaos
