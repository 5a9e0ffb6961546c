#include "client/python/binding/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

namespace gradring::python {
namespace {

constexpr size_t kLeast = 4096;
// What nobody uses is given back to the daemon beyond this, since segments count against its
// limits.
constexpr size_t kIdleMost = size_t{512} << 20;

constexpr size_t kInSlab = 0;  // the capacity of a block that is a slot

// So that blocks of pages fit again where sizes differ a little: an eighth more at most, from 32
// KiB on.
size_t capacity_for(size_t bytes) {
  const size_t step = std::max(kLeast, std::bit_floor(bytes) / 8);
  return (std::max<size_t>(bytes, 1) + step - 1) / step * step;
}

Error too_many() { return {GRADRING_ERR_INVALID, "more than any memory holds"}; }

Error no_mapping(size_t bytes) {
  return {GRADRING_ERR_EXHAUSTED, "cannot map " + std::to_string(bytes) +
                                      " bytes at another address: " + std::strerror(errno)};
}

}  // namespace

void Arena::Block::show_at(void* pages) const {
  std::memcpy(data, pages, bytes);
  // With an old size of 0 the pages of a shared mapping are mapped once more.
  if (::mremap(data, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, pages) == MAP_FAILED) {
    throw no_mapping(bytes);
  }
}

void Arena::Block::hide_at(void* pages) const {
  void* const own =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) throw no_mapping(bytes);
  std::memcpy(own, data, bytes);
  if (::mremap(own, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, pages) == MAP_FAILED) {
    const Error error = no_mapping(bytes);
    ::munmap(own, bytes);
    throw error;
  }
}

Arena::Arena(std::shared_ptr<gradring_comm> comm) : comm_(std::move(comm)), owner_(::getpid()) {}
// Segments go with the communicator, which is closed right behind: to free each by itself would
// wait for a daemon that is stopped or away, half a minute each.
Arena::~Arena() = default;

// What is idle here the parent may have in use by now, and it is the same memory.
void Arena::check_owner() const {
  if (::getpid() == owner_) return;
  void* memory = nullptr;
  check(gradring_alloc(comm_.get(), 1, &memory));  // refused, in the library's words
}

std::shared_ptr<const Arena::Block> Arena::take(size_t bytes) {
  check_owner();
  if (bytes > SIZE_MAX / 2) throw too_many();
  return used(take_slot(bytes), bytes, kInSlab);
}

std::shared_ptr<const Arena::Block> Arena::take_pages(size_t bytes) {
  check_owner();
  if (bytes > SIZE_MAX / 2) throw too_many();
  const size_t capacity = capacity_for(bytes);
  return used(take_segment(capacity), bytes, capacity);
}

// Where the daemon's limits refuse one more, what lies idle here makes room.
std::byte* Arena::take_segment(size_t capacity) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = idle_.find(capacity); found != idle_.end()) {
      std::byte* const data = found->second;
      idle_bytes_ -= capacity;
      idle_.erase(found);
      return data;
    }
  }
  void* memory = nullptr;
  gradring_code code = gradring_alloc(comm_.get(), capacity, &memory);
  if (code == GRADRING_ERR_EXHAUSTED) {
    free_idle();
    code = gradring_alloc(comm_.get(), capacity, &memory);
  }
  check(code);
  return static_cast<std::byte*>(memory);
}

std::byte* Arena::take_slot(size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (std::byte* const slot = slabs_.take(bytes)) return slot;
  }
  size_t whole = 0;
  {
    const std::lock_guard lock(mutex_);
    whole = slabs_.bytes_for(bytes);
  }
  std::byte* const segment = take_segment(whole);
  const std::lock_guard lock(mutex_);
  slabs_.add(segment, whole, bytes);
  return slabs_.take(bytes);
}

std::shared_ptr<const Arena::Block> Arena::used(std::byte* data, size_t bytes, size_t capacity) {
  const auto give_back = [self = shared_from_this(), capacity](const Block* block) {
    self->give_back(*block, capacity);
    delete block;
  };
  std::shared_ptr<const Block> block(new Block{data, bytes}, give_back);
  const std::lock_guard lock(mutex_);
  used_[data] = block;
  return block;
}

void Arena::give_back(const Block& block, size_t capacity) {
  const std::lock_guard lock(mutex_);
  used_.erase(block.data);
  if (block.kept) return;  // its segment is freed with the communicator
  if (capacity != kInSlab) return make_idle(block.data, capacity);
  if (const auto whole = slabs_.give_back(block.data)) make_idle(whole->data, whole->bytes);
}

void Arena::make_idle(std::byte* segment, size_t capacity) {
  idle_.emplace(capacity, segment);
  idle_bytes_ += capacity;
  while (idle_bytes_ > kIdleMost) {
    const auto largest = std::prev(idle_.end());
    // Refused where an op still has it; then it is freed with the communicator.
    gradring_free(comm_.get(), largest->second);
    idle_bytes_ -= largest->first;
    idle_.erase(largest);
  }
}

void Arena::free_idle() {
  const std::lock_guard lock(mutex_);
  for (const auto& [capacity, data] : idle_) gradring_free(comm_.get(), data);
  idle_.clear();
  idle_bytes_ = 0;
}

void Arena::copy(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
  copied_bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

std::shared_ptr<const Arena::Block> Arena::around(const void* at, size_t bytes) const {
  const auto* const first = static_cast<const std::byte*>(at);
  std::shared_ptr<const Block> block;  // outlives the lock, as it may be the last reference
  const std::lock_guard lock(mutex_);
  const auto after = used_.upper_bound(first);
  if (after == used_.begin()) return nullptr;
  block = std::prev(after)->second.lock();
  if (!block) return nullptr;
  const auto offset = static_cast<size_t>(first - block->data);
  const bool inside = offset <= block->bytes && bytes <= block->bytes - offset;
  return inside ? block : nullptr;
}

}  // namespace gradring::python
