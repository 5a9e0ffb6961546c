#pragma once

#include <sys/types.h>

#include <string>

namespace gradring::daemon {

// A connection that was let in. It may have ended since, and its number be another's.
class Guest {
 public:
  explicit Guest(int fd);
  bool is_there() const;

 private:
  int fd_;
  ino_t inode_;
};

// The address from which a TCP connection comes, without the port; for people.
std::string host_of(int fd);

}  // namespace gradring::daemon
