#include "tools/perf/memory.h"

#include <fmt/format.h>

#include <array>
#include <bit>

namespace gradring::tools {
namespace {

constexpr std::array<const char*, 4> kNames = {"host", "gpu", "gpu-registered", "gpu-pool"};

}  // namespace

std::optional<MemoryKind> parse_memory_kind(std::string_view word) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (word == kNames[i]) return static_cast<MemoryKind>(i);
  }
  return std::nullopt;
}

const char* name_of(MemoryKind kind) { return kNames.at(static_cast<size_t>(kind)); }

Memory::Memory(const Communicator& job, const MemoryChoice& choice, size_t bytes)
    : job_(job), choice_(choice) {
  if (choice.kind == MemoryKind::kHost) {
    shared_ = job.allocate<std::byte>(bytes);
    named_ = seen_ = shared_.data();
    return;
  }
  gpu_ = Gpu::open(choice.gpu, job.local_rank());
  copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  seen_ = copy_.get();
  if (choice.kind == MemoryKind::kPool) {
    void* memory = nullptr;
    check(gradring_gpu_alloc(bytes, gpu_->number(), &memory));
    named_ = static_cast<std::byte*>(memory);
    return;
  }
  named_ = std::bit_cast<std::byte*>(gpu_->allocate(bytes));
  if (choice.kind == MemoryKind::kRegistered) {
    check(gradring_register(job.handle(), named_, bytes));
  }
}

// With a job that is over it is gone anyway.
Memory::~Memory() {
  if (choice_.kind == MemoryKind::kRegistered) gradring_unregister(job_.handle(), named_);
  if (choice_.kind == MemoryKind::kPool) {
    gradring_gpu_free(named_);
  } else if (gpu_ != nullptr) {
    gpu_->free(std::bit_cast<uint64_t>(named_));
  }
}

void Memory::put(uint64_t at, uint64_t bytes) {
  if (gpu_ != nullptr) gpu_->write(std::bit_cast<uint64_t>(named_) + at, seen_ + at, bytes);
}

void Memory::get(uint64_t at, uint64_t bytes) {
  if (gpu_ != nullptr) gpu_->read(seen_ + at, std::bit_cast<uint64_t>(named_) + at, bytes);
}

std::string Memory::describe() const {
  if (gpu_ == nullptr) return "";
  return fmt::format("{} ({})", gpu_->name(), name_of(choice_.kind));
}

}  // namespace gradring::tools
