#include "transport/cuda/mapped.h"

#include <fmt/format.h>

#include <bit>

#include "transport/cuda/launch_lock.h"

namespace gradring::transport::cuda {
namespace {

constexpr int kAtLeast = 0;             // CU_MEM_ALLOC_GRANULARITY_MINIMUM
constexpr Driver::Result kInvalid = 1;  // CUDA_ERROR_INVALID_VALUE
// More has no GPU, and it could not always be rounded up.
constexpr uint64_t kBytesMost = uint64_t{1} << 50;

// What a descriptor stands for, while it is looked at.
class Taken {
 public:
  Taken(const Driver& driver, int descriptor) : driver_(driver) {
    void* const as_driver_has_it = std::bit_cast<void*>(static_cast<intptr_t>(descriptor));
    result_ = driver.take_pages(&pages_, as_driver_has_it, kCudaDescriptor);
  }
  ~Taken() {
    if (result_ == Driver::kSuccess) driver_.release_pages(pages_);
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  Driver::Result result() const { return result_; }
  CudaPages pages() const { return pages_; }

 private:
  const Driver& driver_;
  Driver::Result result_;
  CudaPages pages_ = 0;
};

}  // namespace

Mapped::Range::~Range() {
  const auto lock = lock_launches();
  const Gpu::Current current(*gpu_);
  if (current.result() != Driver::kSuccess) return;
  if (filled_) gpu_->driver().unmap(begin_, bytes_);
  if (begin_ != 0) gpu_->driver().unreserve(begin_, bytes_);
}

Status Mapped::Range::fill(CudaPages pages, uint64_t bytes) {
  const Driver& driver = gpu_->driver();
  CudaPagesKind kind;
  size_t page = 0;
  auto result = driver.kind_of_pages(&kind, pages);
  if (result == Driver::kSuccess && kind.at.device != gpu_->device()) {
    return {Code::kInvalidArgument,
            fmt::format("memory that was offered as of {} lies on another GPU",
                        in_words(gpu_->uuid()))};
  }
  if (result == Driver::kSuccess) result = driver.page_bytes(&page, &kind, kAtLeast);
  if (result == Driver::kSuccess) {
    bytes_ = (bytes + page - 1) / page * page;
    result = driver.reserve(&begin_, bytes_, 0, 0, 0);
    if (result != Driver::kSuccess) begin_ = 0;
  }
  if (result == Driver::kSuccess) {
    result = driver.map(begin_, bytes_, 0, pages, 0);
    filled_ = result == Driver::kSuccess;
    if (result == kInvalid) {
      return {Code::kInvalidArgument,
              fmt::format("{} bytes were offered, and there are not as many on {}", bytes,
                          in_words(gpu_->uuid()))};
    }
  }
  if (result == Driver::kSuccess) result = let_in(*gpu_);
  if (result == Driver::kSuccess) return {};
  return {Code::kUnavailable,
          gpu_->words("does not show the daemon the memory that its trainer has offered", result)};
}

Driver::Result Mapped::Range::let_in(const Gpu& gpu) const {
  CudaAccess access;
  access.by.device = gpu.device();
  return gpu_->driver().set_access(begin_, bytes_, &access, 1);
}

tl::expected<std::shared_ptr<const Mapped>, Status> Mapped::make(
    const std::shared_ptr<const Gpu>& gpu, const GpuShare& share,
    std::span<const std::shared_ptr<Gpu>> all) {
  if (share.bytes == 0 || share.bytes > kBytesMost) {
    return tl::unexpected(
        Status(Code::kInvalidArgument, fmt::format("no GPU has {} bytes to offer", share.bytes)));
  }
  auto range = std::make_unique<Range>(gpu);
  uint64_t readers = gpu->bit();
  {
    const auto lock = lock_launches();
    const Gpu::Current current(*gpu);
    const Taken taken(gpu->driver(), share.descriptor);
    const auto result = current.result() != Driver::kSuccess ? current.result() : taken.result();
    if (result != Driver::kSuccess) {
      return tl::unexpected(
          Status(Code::kUnavailable,
                 gpu->words("did not take memory that its trainer has offered", result) +
                     ". Trainer and daemon need the same driver, and the whole GPU (no MIG)"));
    }
    if (Status wrong = range->fill(taken.pages(), share.bytes); !wrong.ok()) {
      return tl::unexpected(std::move(wrong));
    }
    for (const auto& other : all) {
      if (other == gpu || !other->has_way_to(*gpu)) continue;
      if (range->let_in(*other) == Driver::kSuccess) readers |= other->bit();
    }
  }
  return std::make_shared<const Mapped>(std::move(range), share.bytes, readers);
}

}  // namespace gradring::transport::cuda
