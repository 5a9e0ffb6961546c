#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "daemon/fd.h"
#include "proto/status.h"

namespace gradring::daemon {

// Descriptors that outlive this process: systemd, or `gradringd --keep`, holds a copy of each and
// hands it to the next gradringd. Every name is held once. One thread at a time.
class FdStore {
 public:
  // Takes over what the last gradringd left, and takes it out of the environment: make one, before
  // there are threads and before other descriptors are opened.
  FdStore();
  FdStore(const FdStore&) = delete;
  FdStore& operator=(const FdStore&) = delete;

  // False: nobody does, and all is lost with the process.
  bool somebody_keeps() const { return keeps_; }

  // Names of what was inherited and is not taken yet, sorted.
  std::vector<std::string> inherited() const;
  // Invalid if there is none. It stays in the store; keep() is not needed again.
  Fd take(const std::string& name);

  // What was kept under the name before is forgotten. A refusal says why; kUnavailable: nobody
  // keeps anything. A success means that it was handed over: nobody says what became of it.
  // kPoll: is let go by itself when the other end hangs up.
  enum class Watch { kNone, kPoll };
  Status keep(const std::string& name, int fd, Watch watch = Watch::kNone);
  // Memory is freed and a socket closed only when they are forgotten here as well.
  void forget(const std::string& name);
  // Whatever was inherited and nobody took.
  void forget_rest();
  void forget_all();

 private:
  bool keeps_ = false;
  size_t most_ = 0;
  size_t names_bytes_ = 0;          // of held_, each with its separator
  std::map<std::string, Fd> held_;  // invalid: taken, or ours from the beginning
};

}  // namespace gradring::daemon
