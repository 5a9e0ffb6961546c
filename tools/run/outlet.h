#pragma once

#include <string_view>

namespace gradring::tools {

// One of our outputs. Its reader may take its time, for ever if need be, but not from somebody who
// wants all to end: signals are blocked, so a write that waits would not hear of them.
class Outlet {
 public:
  // `hurry` can be read when there is such a signal.
  Outlet(int fd, int hurry) : fd_(fd), hurry_(hurry) {}

  // All of it, or as much as anybody reads.
  void write(std::string_view bytes);
  // From now on a reader that takes nothing for a second is taken to have gone.
  void make_haste() { in_haste_ = true; }
  // errno of what it could not take, as of a full disk; 0: it took all, or its reader went away.
  int fault() const { return fault_; }

 private:
  int fd_;
  int hurry_;
  bool in_haste_ = false;
  bool gone_ = false;
  int fault_ = 0;
};

}  // namespace gradring::tools
