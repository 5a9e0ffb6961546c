#pragma once

#include <map>
#include <string>
#include <vector>

#include "daemon/core/time.h"

namespace gradring::core {

// Says who has been silent for how long. Like a night watch that calls each post and writes down
// when it last answered: after `suspect` it worries aloud, after `decide` it acts, and a post that
// answers in between is simply well again. A post that was decided lost stays lost until it is
// added anew.
class FailureDetector {
 public:
  struct Options {
    Time suspect = 1 * kSecond;
    Time decide = 3 * kSecond;
  };
  enum class Health { kAlive, kSuspect, kLost };
  struct Change {
    std::string peer;
    Health health = Health::kAlive;
    Time silent = 0;
  };

  explicit FailureDetector(Options options) : options_(options) {}

  void add(const std::string& peer, Time now);
  void remove(const std::string& peer);
  void heard(const std::string& peer, Time now);

  // Changes since the last tick. A watch that itself slept (no tick for longer than `suspect`: the
  // host was paused) blames nobody: every peer gets its full time anew.
  std::vector<Change> tick(Time now);

  // How long this watch itself slept, where it woke up no longer than `decide` ago, or has just
  // now; else 0. Then others have given us up, and not the other way round; but of what stands only
  // `since` it woke up that is not why it ends.
  Time slept(Time now, Time since) const;

  Health health_of(const std::string& peer) const;
  Time silent_for(const std::string& peer, Time now) const;

 private:
  struct Post {
    Time heard = 0;
    Health health = Health::kAlive;
  };
  const Options options_;
  std::map<std::string, Post> posts_;
  Time last_tick_ = 0;
  Time slept_ = 0;
  Time woke_ = 0;
};

}  // namespace gradring::core
