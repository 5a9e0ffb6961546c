#include "client/python/binding/arena.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace gradring::python {
namespace {

constexpr size_t kLeast = 4096;
// What nobody uses is given back to the daemon beyond this, since segments count against its
// limits.
constexpr size_t kIdleMost = size_t{512} << 20;

// So that blocks fit again where sizes differ a little: an eighth more at most, from 32 KiB on.
size_t capacity_for(size_t bytes) {
  const size_t step = std::max(kLeast, std::bit_floor(bytes) / 8);
  return (std::max<size_t>(bytes, 1) + step - 1) / step * step;
}

}  // namespace

Arena::~Arena() {
  for (const auto& [capacity, data] : idle_) gradring_free(comm_.get(), data);
}

std::shared_ptr<const Arena::Block> Arena::take(size_t bytes) {
  if (bytes > SIZE_MAX / 2) throw Error(GRADRING_ERR_INVALID, "more than any memory holds");
  const size_t capacity = capacity_for(bytes);
  std::byte* data = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = idle_.find(capacity); found != idle_.end()) {
      data = found->second;
      idle_bytes_ -= capacity;
      idle_.erase(found);
    }
  }
  if (data == nullptr) {
    void* memory = nullptr;
    check(gradring_alloc(comm_.get(), capacity, &memory));
    data = static_cast<std::byte*>(memory);
  }
  const auto give_back = [self = shared_from_this(), capacity](const Block* block) {
    self->give_back(block->data, capacity);
    delete block;
  };
  std::shared_ptr<const Block> block(new Block{data, bytes}, give_back);
  const std::lock_guard lock(mutex_);
  used_[data] = block;
  return block;
}

void Arena::give_back(std::byte* data, size_t capacity) {
  const std::lock_guard lock(mutex_);
  used_.erase(data);
  idle_.emplace(capacity, data);
  idle_bytes_ += capacity;
  while (idle_bytes_ > kIdleMost) {
    const auto largest = std::prev(idle_.end());
    // Refused where an op still has it; then it is freed with the communicator.
    gradring_free(comm_.get(), largest->second);
    idle_bytes_ -= largest->first;
    idle_.erase(largest);
  }
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
