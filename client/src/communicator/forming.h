#pragma once

#include <gradring/gradring.h>

#include <chrono>
#include <optional>
#include <string>

#include "client.pb.h"

namespace gradring::client {

// Who is told, in this process, of ranks that a job waits for while it forms
// (gradring_watch_forming).
struct FormingWatch {
  std::chrono::milliseconds every{};  // zero: nobody
  gradring_forming tell = nullptr;
  void* context = nullptr;
};
void set_forming_watch(const FormingWatch& watch);
FormingWatch forming_watch();

// What the job waits for by this answer, for people; nothing if it does not form any more, or if
// another rank, which waits as well, is to tell it. `rank`, of its `size`: who asks.
std::optional<std::string> forming_in_words(const wire::JobReport& report, uint32_t rank,
                                            bool group);

}  // namespace gradring::client
