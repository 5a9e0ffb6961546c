#pragma once

#include <string>
#include <tl/expected.hpp>

#include "proto/status.h"
#include "transport/machine/apart.h"
#include "transport/machine/look.h"

namespace gradring::machine {

// Looks at the machine from a child process: the drivers' libraries are loaded there, and when one
// of them crashes, or hangs in a GPU that has fallen off the bus, nobody else does. One thread
// only.
class LookApart {
 public:
  // Forks: call it while the process has one thread. If that fails, the report says so.
  void start(const LookOptions& options);

  // Readable when there is something to read(); -1 once it is over.
  int fd() const { return child_.fd(); }
  bool over() const { return child_.over(); }
  // Takes what has come, without waiting; true once it is over.
  bool read();
  // Nobody waits any longer: the child is killed, and the report says that it was too slow.
  void give_up();
  // Waits for the end, at most so long.
  void wait(int milliseconds);

  // Whole once it is over; before that it says that the look is under way.
  const wire::MachineReport& report() const { return report_; }

 private:
  void fail(const std::string& why);

  std::string recording_;
  std::string bytes_;
  wire::MachineReport report_;
  Apart child_;
};

}  // namespace gradring::machine
