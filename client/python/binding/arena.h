#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <gradring/gradring.hpp>
#include <map>
#include <memory>
#include <mutex>

#include "client/python/binding/slabs.h"

namespace gradring::python {

// Memory that trainers share with the daemon, in blocks that are used again: to ask the daemon for
// a segment takes longer than most ops do. One for a communicator and all groups made from it, as
// each may name the memory of all.
//
// Thread-safe, and needs no interpreter lock.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  explicit Arena(std::shared_ptr<gradring_comm> comm);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A block in use; it goes back with the last reference, and keeps the communicator open.
  struct Block {
    std::byte* data = nullptr;
    size_t bytes = 0;  // that were asked for
    // The daemon may use it still, for ops that this rank has left: others are not to have it.
    mutable std::atomic<bool> kept{false};

    // Lets these pages of the process be another view of the block, with what is in them; they are
    // a mapping of at least the block's size, which whoever made it unmaps as before. hide_at()
    // puts memory of the process's own in their place, with the same content. Throw Error.
    void show_at(void* pages) const;
    void hide_at(void* pages) const;
  };
  // With whatever is in it. A small one shares a segment, and maybe pages, with others; it is
  // aligned to its size, and to a cache line at least. Throw Error.
  std::shared_ptr<const Block> take(size_t bytes);
  // Page aligned, and nobody else's: it may be shown elsewhere.
  std::shared_ptr<const Block> take_pages(size_t bytes);

  // The block in use around these bytes; null if they are ordinary memory.
  std::shared_ptr<const Block> around(const void* at, size_t bytes) const;

  // memcpy between a block and ordinary memory, counted.
  void copy(void* to, const void* from, size_t bytes);
  uint64_t copied_bytes() const { return copied_bytes_.load(std::memory_order_relaxed); }

 private:
  // Throws Error where this process was forked from the one that has the memory.
  void check_owner() const;
  std::byte* take_segment(size_t capacity);
  std::byte* take_slot(size_t bytes);
  std::shared_ptr<const Block> used(std::byte* data, size_t bytes, size_t capacity);
  void give_back(const Block& block, size_t capacity);
  void make_idle(std::byte* segment, size_t capacity);
  void free_idle();

  const std::shared_ptr<gradring_comm> comm_;
  const pid_t owner_;
  std::atomic<uint64_t> copied_bytes_{0};
  mutable std::mutex mutex_;
  std::multimap<size_t, std::byte*> idle_;  // segments, by capacity
  size_t idle_bytes_ = 0;
  Slabs slabs_;
  std::map<const std::byte*, std::weak_ptr<const Block>> used_;  // by address
};

}  // namespace gradring::python
