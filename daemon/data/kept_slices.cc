#include "daemon/data/kept_slices.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace gradring::daemon {
namespace {

// Powers of two from here on.
constexpr uint64_t kLeast = 4096;

uint32_t class_of(size_t bytes) {
  if (bytes <= kLeast) return 0;
  return static_cast<uint32_t>(std::bit_width(bytes - 1) - std::bit_width(kLeast - 1));
}

}  // namespace

KeptSlices::KeptSlices(transport::Segment memory, const std::map<uint32_t, Place>& places)
    : bytes_max_(memory.memory().size()),
      memory_(std::move(memory)),
      base_(memory_->memory().data()) {
  for (const auto& [number, place] : places) {
    const uint32_t size_class = class_of(place.length);
    places_.resize(std::max<size_t>(places_.size(), number + 1));
    places_[number] = {place.offset, place.length, size_class};
    used_ = std::max(used_, place.offset + (kLeast << size_class));
    free_at_.resize(std::max<size_t>(free_at_.size(), size_class + 1));
  }
  for (uint32_t number = 0; number < places_.size(); ++number) {
    if (places.count(number) == 0) free_numbers_.push_back(number);
  }
}

KeptSlices::~KeptSlices() {
  if (base_ != nullptr && !memory_) munmap(base_, bytes_max_);
}

std::optional<uint64_t> KeptSlices::take(uint32_t size_class) {
  if (base_ == nullptr) {
    if (bytes_max_ == 0) return std::nullopt;
    void* memory = mmap(nullptr, bytes_max_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return std::nullopt;  // the op waits until it is stable
    base_ = static_cast<std::byte*>(memory);
  }
  if (size_class >= free_at_.size()) free_at_.resize(size_class + 1);
  std::vector<uint64_t>& free = free_at_[size_class];
  if (!free.empty()) {
    const uint64_t offset = free.back();
    free.pop_back();
    return offset;
  }
  const uint64_t bytes = kLeast << size_class;
  if (bytes > bytes_max_ - used_) return std::nullopt;
  used_ += bytes;
  return used_ - bytes;
}

std::optional<uint32_t> KeptSlices::keep(std::span<const std::byte> slice) {
  const uint32_t size_class = class_of(slice.size());
  const auto offset = take(size_class);
  if (!offset) return std::nullopt;
  uint32_t number = 0;
  if (free_numbers_.empty()) {
    number = static_cast<uint32_t>(places_.size());
    places_.emplace_back();
  } else {
    number = free_numbers_.back();
    free_numbers_.pop_back();
  }
  places_[number] = {*offset, static_cast<uint32_t>(slice.size()), size_class};
  std::memcpy(base_ + *offset, slice.data(), slice.size());
  return number;
}

void KeptSlices::drop(uint32_t number) {
  free_at_[places_[number].size_class].push_back(places_[number].offset);
  free_numbers_.push_back(number);
  if (count() > 0) return;
  used_ = 0;  // and no gaps that an earlier life may have left
  for (auto& free : free_at_) free.clear();
}

}  // namespace gradring::daemon
