#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "tools/ctl/top/model.h"

namespace gradring::tools::top {

// Asks a daemon each second on a thread of its own, so that a daemon that does not answer keeps
// nobody from pressing keys. A daemon that is gone is tried again each second.
class Watcher {
 public:
  Watcher(std::string runtime_dir, Choice choice);
  // Within the time that one look takes: some seconds where the daemon does not answer.
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // From the next look on, which begins at once.
  void choose(const Choice& choice);

  // Any thread. What was seen last: of nobody before the first answer. How long the daemon has been
  // silent is of this moment.
  Model latest() const;
  // Changes with everything that latest() tells, but the length of a silence.
  uint64_t looks() const;

 private:
  void watch();
  void look(const Choice& choice);

  const std::string runtime_dir_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  Choice choice_;
  Model model_;
  uint64_t looks_ = 0;
  int64_t answered_ms_ = 0;  // of the monotonic clock
  std::string silent_why_;   // empty: it is not

  // Of the thread alone.
  std::deque<Sample> samples_;
  Choice seen_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gradring::tools::top
