#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/fd.h"

namespace gradring::keep {

using daemon::Fd;

// The descriptors that wait for the next gradringd, as systemd would keep them: by name, several
// under one if need be, an open file once. What is in them is never read.
class KeptFds {
 public:
  struct Kept {
    std::string name;
    Fd fd;
    uint64_t id = 0;
    dev_t device = 0;
    ino_t inode = 0;
    bool watched = false;
  };

  explicit KeptFds(size_t most);

  // Empty, or why it is not kept. An open file that is here already is not kept twice, whatever
  // its name: that is no error.
  std::string add(const std::string& name, Fd fd, bool poll);
  // How many were let go.
  size_t remove(const std::string& name);

  // Readable when drop_hung_up() has something to do.
  int watch_fd() const { return watch_.get(); }
  // Lets go of those whose other end has hung up, and returns their names.
  std::vector<std::string> drop_hung_up();

  // In the order in which they came.
  const std::vector<Kept>& all() const { return kept_; }

 private:
  bool has(const Kept& other) const;
  void let_go(const Kept& kept);

  const size_t most_;
  Fd watch_;
  std::vector<Kept> kept_;
  size_t names_bytes_ = 0;
  uint64_t next_id_ = 1;
};

}  // namespace gradring::keep
