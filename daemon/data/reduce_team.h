#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace gradring::daemon {

// Threads that help one other to get through the parts of a piece of work: the owner shares out
// part after part, takes part itself, and is never waiting for more than the parts that helpers are
// in the middle of. So a helper that is not scheduled costs nothing. A helper without work looks on
// for some tens of microseconds and then sleeps.
//
// Thread-safety: run() by one thread only, always the same.
class ReduceTeam {
 public:
  explicit ReduceTeam(uint32_t helpers);
  ~ReduceTeam();
  ReduceTeam(const ReduceTeam&) = delete;
  ReduceTeam& operator=(const ReduceTeam&) = delete;

  // Calls work(context, part) once for each part from 0 to parts - 1, on this thread and on those
  // of the helpers that are awake; `wake`: the others as well. Returns when all calls have. What
  // was written before is seen by them, and what they wrote is seen after.
  using Work = void (*)(void* context, uint32_t part);
  void run(uint32_t parts, Work work, void* context, bool wake);

  uint32_t helpers() const { return static_cast<uint32_t>(threads_.size()); }

 private:
  void help();
  bool take_part();

  // In one word, so that a part is taken of the work that was looked at and of no later one: which
  // work it is, and how many of its parts nobody has taken yet. The rest is written while there are
  // none.
  std::atomic<uint64_t> left_{0};
  std::atomic<uint32_t> parts_{0};
  std::atomic<Work> work_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<uint32_t> done_{0};

  std::atomic<uint32_t> bell_{0};
  std::atomic<uint32_t> asleep_{0};
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

}  // namespace gradring::daemon
