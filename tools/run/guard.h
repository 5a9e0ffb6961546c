#pragma once

#include <sys/types.h>

#include <vector>

namespace gradring::tools {

// A small process that outlives this one only to clean up after it: when this process is gone
// without having dismissed its guard (SIGKILL, a crash), the guard kills the process groups it was
// given.
class Guard {
 public:
  explicit Guard(const std::vector<pid_t>& groups);
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();

  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;  // -1: there is none; the launch goes on without
  int thread_of_life_ = -1;
};

}  // namespace gradring::tools
