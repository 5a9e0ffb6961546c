#pragma once

#include <sys/types.h>

namespace gradring::tools {

// A small process that outlives this one only to clean up after it: when this process is gone
// without having dismissed its guard (SIGKILL, a crash), the guard kills the process groups that
// were put under it.
class Guard {
 public:
  Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();

  pid_t pid() const { return pid_; }
  // A process group is put under the guard by writing its number, a pid_t, in one write. Each does
  // so itself before it can have children, so there is no moment without a guard. Closes on exec;
  // -1: there is none.
  int door() const { return door_; }

 private:
  pid_t pid_ = -1;  // -1: there is none; the launch goes on without
  int door_ = -1;
};

}  // namespace gradring::tools
