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

Arena::Arena(gradring_comm* comm, uint64_t bytes, Kind kind, const test::TestGpu* gpu, int device)
    : comm_(comm), bytes_(bytes), kind_(kind) {
  if (kind == Kind::kAllocated) {
    void* memory = nullptr;
    check(gradring_alloc(comm, bytes, &memory));
    memory_ = static_cast<std::byte*>(memory);
    return;
  }
  const size_t odd = kind == Kind::kRegistered ? 1 : 0;  // it may begin anywhere
  own_ = std::make_unique_for_overwrite<std::byte[]>(bytes + odd);
  memory_ = own_.get() + odd;
  if (kind != Kind::kRegistered) {
    gpu_ = gpu;
    stream_ = gpu->make_stream();
  }
  if (kind == Kind::kPooledOnGpu) {
    void* memory = nullptr;
    check(gradring_gpu_alloc(bytes, device, &memory));
    gpu_begin_ = reinterpret_cast<uint64_t>(memory);
  } else if (gpu_ != nullptr) {
    gpu_begin_ = gpu->alloc(bytes, false);
  }
  if (is_registered()) check(gradring_register(comm, named(memory_), bytes));
}

// Of a communicator that is over they are gone anyway.
Arena::~Arena() {
  if (kind_ == Kind::kAllocated) static_cast<void>(gradring_free(comm_, memory_));
  if (is_registered()) static_cast<void>(gradring_unregister(comm_, named(memory_)));
  if (gpu_ == nullptr) return;
  gpu_->end_stream(stream_);
  if (kind_ == Kind::kPooledOnGpu) {
    static_cast<void>(gradring_gpu_free(named(memory_)));
  } else {
    gpu_->free(gpu_begin_);
  }
}

void* Arena::named(const std::byte* at) const {
  if (gpu_ == nullptr) return const_cast<std::byte*>(at);  // NOLINT: it is this arena's
  return reinterpret_cast<void*>(on_gpu(at));              // NOLINT: as an op names it
}

void Arena::put(const std::byte* at, uint64_t bytes) const {
  if (gpu_ != nullptr) gpu_->write(on_gpu(at), at, bytes);
}

void Arena::get(std::byte* at, uint64_t bytes) const {
  if (gpu_ != nullptr) gpu_->read(on_gpu(at), at, bytes);
}

void Arena::wait_for_stream() const {
  if (gpu_ != nullptr) gpu_->wait_for(stream_);
}

// As the GPU's memory does, the host's begins at a multiple of a line.
std::byte* Arena::take(uint64_t bytes) {
  const auto at = (gpu_ != nullptr ? 0 : reinterpret_cast<uintptr_t>(memory_)) + used_;
  const uint64_t first = used_ + (kLine - at % kLine) % kLine;
  GRADRING_CHECK(first + bytes <= bytes_, "a program takes more memory than it may");
  used_ = first + bytes;
  return memory_ + first;
}

Arena& Arenas::of(const Place& place) {
  const bool there = gpu_ != nullptr && (place.on_gpu || all_on_gpu_);
  auto kind = place.registered ? Arena::Kind::kRegistered : Arena::Kind::kAllocated;
  if (there) kind = place.pooled ? Arena::Kind::kPooledOnGpu : Arena::Kind::kOnGpu;
  if (there && place.registered) kind = Arena::Kind::kRegisteredOnGpu;
  std::unique_ptr<Arena>& arena = arenas_[static_cast<size_t>(kind)];
  if (arena == nullptr) arena = std::make_unique<Arena>(comm_, bytes_, kind, gpu_, device_);
  return *arena;
}

void Arenas::take_back_all() {
  for (const auto& arena : arenas_) {
    if (arena != nullptr) arena->take_back_all();
  }
}

Buffer::Buffer(Arena& arena, uint64_t bytes, uint64_t shift)
    : arena_(&arena),
      bytes_(bytes),
      data_(arena.take(shift + bytes + 2 * kMargin) + kMargin + shift),
      image_(bytes + 2 * kMargin, kUntouched) {
  std::fill_n(data_ - kMargin, image_.size(), kUntouched);
  arena.put(data_ - kMargin, image_.size());
}

void Buffer::fill(uint64_t at, uint64_t bytes, const Bytes& cycle) {
  repeat(cycle, data_ + at, bytes);
  arena_->put(data_ + at, bytes);
  accept(at, bytes);
}

void Buffer::look() { arena_->get(data_ - kMargin, image_.size()); }

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
