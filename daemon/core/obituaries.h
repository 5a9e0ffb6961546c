#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/core/time.h"

namespace gradring::core {

// That a life of a node is over, or that it is not: told from link to link to all nodes.
struct Notice {
  std::string node;
  uint64_t boot = 0;
  uint64_t number = 0;   // a denial has a higher one than what it denies
  bool dead = false;     // of two with the same number this one counts
  bool silent = false;   // it was not heard; else its connection closed
  std::string evidence;  // for people

  bool operator==(const Notice&) const = default;
};

// What is said of the lives of others. Whoever loses a link says so, and everybody passes on what
// is new to him, once: so a death costs each node no more messages than it has links. Word of a
// death is believed after a moment, in which whoever is still alive hears of it by his other links
// and denies it. Pure; one thread.
class Obituaries {
 public:
  // `patience` for a denial: some hops there and back.
  Obituaries(std::string self, uint64_t boot, Time patience)
      : self_(std::move(self)), boot_(boot), patience_(patience) {}

  // Each returns what is to be told to all links, but for the one it came from; empty: no news.
  std::vector<Notice> lost(const std::string& node, uint64_t boot, bool silent,
                           const std::string& evidence, Time now);
  std::vector<Notice> on_notice(const Notice& notice, Time now);

  // The link to it stands: its own obituary, which it does not know or else would have denied.
  std::vector<Notice> greet(const std::string& node, uint64_t boot) const;
  // All links were lost: it is this node that was cut off, and it blames nobody.
  void forget_own();

  // Deaths that nobody denied in time, each once.
  std::vector<Notice> tick(Time now);
  Time next_deadline() const;

  // Whether that is believed.
  bool dead(const std::string& node, uint64_t boot) const;
  // The last word on it; nothing: there is none.
  const Notice* word_on(const std::string& node, uint64_t boot) const;
  uint64_t denials() const { return denials_; }

 private:
  struct Life {
    Notice last;
    bool believed = false;
    bool ours = false;  // we said so first
    Time due = 0;       // 0: nothing is
  };
  Life* find(const std::string& node, uint64_t boot);
  const Life* find(const std::string& node, uint64_t boot) const;
  Life& enter(const Notice& notice, Time now);

  const std::string self_;
  const uint64_t boot_;
  const Time patience_;
  uint64_t denials_ = 0;
  std::map<std::string, std::vector<Life>> lives_;  // of each the last few, oldest first
};

}  // namespace gradring::core
