#pragma once

#include <cstdint>
#include <gradring/gradring.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "client/python/binding/arena.h"

namespace gradring::python {

// An op under way, and what is to be copied to ordinary memory when it is done.
//
// Thread-safe, and needs no interpreter lock. Whoever drops it without having waited gives it to
// the communicator's Leftovers: the daemon may write to its blocks still.
class Pending {
 public:
  struct CopyOut {
    void* to = nullptr;
    const std::byte* from = nullptr;
    size_t bytes = 0;
  };
  struct Parts {
    // That it names. Let go of after the communicator, which may end with it: nobody else is to
    // have them before.
    std::vector<std::shared_ptr<const Arena::Block>> blocks;
    std::shared_ptr<gradring_comm> comm;
    std::shared_ptr<Arena> arena;
    gradring_request request = 0;
    CopyOut copy_out;

    // The daemon may use its blocks still.
    void keep_blocks() const;
  };

  explicit Pending(Parts parts) : parts_(std::move(parts)) {}

  // True once the op is done and its result is where it belongs; false if the time is over first
  // (-1: never). Throws Error if it failed, as often as it is asked.
  bool wait(int64_t timeout_ms);
  // Of an op on a GPU's memory: this stream waits for it, and has the result then. False: it cannot
  // wait by itself, and the time was over first. Nothing where somebody has waited for the op, and
  // so brought the result.
  bool wait_on_stream(uintptr_t stream, int64_t timeout_ms);
  // Of an op that is done well.
  std::optional<gradring_result> result() const;
  // Of one that is under way; nothing where it is not. Throws Error if the daemon does not answer.
  std::optional<gradring_progress> progress() const;

  // What has to live on where nobody waited; nothing if somebody did.
  std::optional<Parts> leave();

 private:
  bool wait_once(int64_t timeout_ms);

  mutable std::timed_mutex mutex_;
  Parts parts_;
  std::optional<gradring_result> result_;
  std::optional<Error> error_;
};

// Ops that nobody waits for any more, until they are done.
class Leftovers {
 public:
  Leftovers() = default;
  Leftovers(const Leftovers&) = delete;
  Leftovers& operator=(const Leftovers&) = delete;
  ~Leftovers();

  void add(Pending::Parts parts);
  // Lets go of those that are done.
  void sweep();

 private:
  std::mutex mutex_;
  std::vector<Pending::Parts> parts_;
};

}  // namespace gradring::python
