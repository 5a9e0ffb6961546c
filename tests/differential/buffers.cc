#include "tests/differential/buffers.h"

#include <algorithm>
#include <cstring>
#include <gradring/gradring.hpp>

#include "proto/check.h"

namespace gradring::differential {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kMargin = 64;
constexpr auto kUntouched = static_cast<std::byte>(0xc5);

}  // namespace

Arena::Arena(gradring_comm* comm, uint64_t bytes, Kind kind) : comm_(comm), bytes_(bytes) {
  if (kind == Kind::kAllocated) {
    void* memory = nullptr;
    check(gradring_alloc(comm, bytes, &memory));
    memory_ = static_cast<std::byte*>(memory);
  } else {
    own_ = std::make_unique<std::byte[]>(bytes);
    memory_ = own_.get();
    check(gradring_register(comm, memory_, bytes));
  }
}

// Of a communicator that is over they are gone anyway.
Arena::~Arena() {
  static_cast<void>(own_ ? gradring_unregister(comm_, memory_) : gradring_free(comm_, memory_));
}

std::byte* Arena::take(uint64_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(memory_) + used_;
  const uint64_t first = used_ + (kLine - at % kLine) % kLine;
  GRADRING_CHECK(first + bytes <= bytes_, "a program takes more memory than it may");
  used_ = first + bytes;
  return memory_ + first;
}

Buffer::Buffer(Arena& arena, uint64_t bytes, uint64_t shift)
    : bytes_(bytes),
      data_(arena.take(shift + bytes + 2 * kMargin) + kMargin + shift),
      image_(bytes + 2 * kMargin, kUntouched) {
  std::fill_n(data_ - kMargin, image_.size(), kUntouched);
}

void Buffer::fill(uint64_t at, uint64_t bytes, const Bytes& cycle) {
  repeat(cycle, data_ + at, bytes);
  accept(at, bytes);
}

void Buffer::accept(uint64_t at, uint64_t bytes) {
  std::copy_n(data_ + at, bytes, image_.begin() + static_cast<ptrdiff_t>(kMargin + at));
}

std::string Buffer::fault() const {
  const std::byte* const from = data_ - kMargin;
  if (std::memcmp(from, image_.data(), image_.size()) == 0) return "";
  const auto differs = std::mismatch(image_.begin(), image_.end(), from).first - image_.begin();
  return "byte " + std::to_string(differs - static_cast<ptrdiff_t>(kMargin)) + " of a buffer of " +
         std::to_string(bytes_) + " must not have changed and did";
}

}  // namespace gradring::differential
