#include "transport/cuda/gpu.h"

#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <thread>

#include "proto/reduction.h"

namespace gradring::transport::cuda {
namespace {

// What a GPU has begun takes milliseconds. One that has not ended by then never will, and whoever
// waits for it, as the driver does before it frees anything, waits forever.
constexpr auto kEndsWithin = std::chrono::seconds(10);
// One that was waited for in vain may end what NCCL has aborted meanwhile.
constexpr auto kEndsAfterAll = std::chrono::seconds(1);

// A context keeps a stack for each thread that its GPU holds, of 1 KiB if nobody says otherwise:
// 264 MiB on an H100 (docs/gpu-notes.md). Our kernels have 8 bytes on theirs.
constexpr size_t kStackBytes = 256;

// No module: every driver refuses it.
alignas(64) constexpr std::array<std::byte, 64> kNoKernels{};

// Of the two that are the same, the kernel's name has the first.
ReduceOp kernel_op(ReduceOp op) { return op == ReduceOp::kAverage ? ReduceOp::kSum : op; }

}  // namespace

std::string in_words(const Driver::Uuid& uuid) {
  std::string words = "GPU";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) words += '-';
    words += fmt::format("{:02x}", std::to_integer<unsigned>(uuid[i]));
  }
  return words;
}

Gpu::Current::Current(const Gpu& gpu)
    : driver_(gpu.driver_), result_(driver_.push_context(gpu.context_)) {}

Gpu::Current::~Current() {
  Driver::Context ours = nullptr;
  if (result_ == Driver::kSuccess) driver_.pop_context(&ours);
}

Gpu::Gpu(const Driver& driver, Driver::Device device, unsigned index,
         std::span<const std::byte> kernels)
    : driver_(driver), device_(device), index_(index), kernels_(kernels) {
  std::array<char, 128> name{};
  const bool told = driver_.device_name(name.data(), static_cast<int>(name.size()) - 1, device) ==
                    Driver::kSuccess;
  name_ = told ? name.data() : "a GPU without a name";
  driver_.device_uuid(&uuid_, device);
}

// What still works is left alone, with all that it works with.
Gpu::~Gpu() {
  if (started_ && rest()) stop();
}

bool Gpu::rest() const {
  const Current current(*this);
  const auto until = std::chrono::steady_clock::now() + (hangs_ ? kEndsAfterAll : kEndsWithin);
  while (driver_.query_stream(stream_) == Driver::kNotReady) {
    if (std::chrono::steady_clock::now() > until) {
      hangs_ = true;
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  hangs_ = false;
  return true;
}

std::string Gpu::words(std::string_view what, Driver::Result result) const {
  return fmt::format("{} ({}) {}: {}", name_, in_words(uuid_), what, driver_.in_words(result));
}

bool Gpu::lends_dmabufs() const {
  int lends = 0;
  const auto asked = driver_.device_attribute(&lends, Driver::kLendsDmabufs, device_);
  return asked == Driver::kSuccess && lends != 0;
}

bool Gpu::under_mps() const {
  int shared = 0;
  const auto asked = driver_.device_attribute(&shared, Driver::kUnderMps, device_);
  return asked == Driver::kSuccess && shared != 0;
}

Status Gpu::takes_kernels() {
  if (driver_.retain_primary(&context_, device_) != Driver::kSuccess) return {};  // perhaps later
  Status status;
  {
    const Current current(*this);
    if (current.result() == Driver::kSuccess) status = load();
  }
  stop();
  return status;
}

Status Gpu::load() {
  const void* const image = kernels_.empty() ? kNoKernels.data() : kernels_.data();
  auto result = driver_.load_module(&module_, image);
  if (result != Driver::kSuccess) module_ = nullptr;
  if (result == Driver::kSuccess) result = find_kernels();
  if (result == Driver::kSuccess) return {};
  if (kernels_.empty()) {
    return {Code::kUnavailable, "this gradringd was built without GPU kernels (GRADRING_CUDA)"};
  }
  return {Code::kUnavailable,
          words("does not take the kernels of this gradringd", result) +
              ". Build it for this kind of GPU (CMAKE_CUDA_ARCHITECTURES), or update the driver"};
}

// All at once: a driver may load a kernel when it is first asked for, or first launched, and wait
// for the GPU then.
Driver::Result Gpu::find_kernels() {
  const auto result = find_kernels("gradring_fold", false, &folds_);
  if (result != Driver::kSuccess) return result;
  return find_kernels("gradring_scaled_fold", true, &scaled_folds_);
}

Driver::Result Gpu::find_kernels(const char* prefix, bool floats_alone, Kernels* kernels) {
  for (uint8_t dtype = 1; dtype <= kDtypeLast; ++dtype) {
    if (floats_alone && !is_float(static_cast<Dtype>(dtype))) continue;
    for (uint8_t op = 1; op <= kReduceOpLast; ++op) {
      if (!can_reduce(static_cast<Dtype>(dtype), static_cast<ReduceOp>(op)).ok()) continue;
      const auto named = static_cast<int>(kernel_op(static_cast<ReduceOp>(op)));
      const std::string name = fmt::format("{}_{}_{}", prefix, dtype, named);
      const auto result = find(name, &(*kernels)[dtype][op]);
      if (result != Driver::kSuccess) return result;
    }
  }
  return Driver::kSuccess;
}

Driver::Result Gpu::find(const std::string& name, Kernel* kernel) const {
  auto result = driver_.get_function(&kernel->function, module_, name.c_str());
  if (result == Driver::kSuccess && driver_.load_function != nullptr) {
    result = driver_.load_function(kernel->function);
  }
  int multiprocessors = 0, on_each = 0;
  if (result == Driver::kSuccess) {
    result = driver_.device_attribute(&multiprocessors, Driver::kMultiprocessors, device_);
  }
  if (result == Driver::kSuccess) {
    result = driver_.blocks_at_once(&on_each, kernel->function, kBlockThreads, 0);
  }
  kernel->blocks = static_cast<unsigned>(on_each * multiprocessors);
  return result;
}

Status Gpu::start(bool alone) {
  if (started_) return {};
  if (const auto result = driver_.retain_primary(&context_, device_); result != Driver::kSuccess) {
    context_ = nullptr;
    return {
        Code::kUnavailable,
        words("gives the daemon no context", result) +
            ". See what nvidia-smi says: its memory may be full, or its compute mode exclusive"};
  }
  Status status;
  {
    const Current current(*this);
    status = current.result() == Driver::kSuccess
                 ? make(alone)
                 : Status{Code::kUnavailable,
                          words("cannot be entered by the daemon", current.result())};
  }
  started_ = status.ok();
  if (!started_) stop();
  return status;
}

Status Gpu::make(bool alone) {
  Status status = load();
  if (!status.ok()) return status;
  if (alone) driver_.set_limit(Driver::kStackBytes, kStackBytes);  // or it takes more
  // Ahead of the trainer's kernels where both could run: these are short, and it waits for them.
  int least = 0, greatest = 0;
  driver_.priority_range(&least, &greatest);
  const auto stream = driver_.create_stream(&stream_, Driver::kNonBlocking, greatest);
  if (stream != Driver::kSuccess) {
    stream_ = nullptr;
    return {Code::kUnavailable, words("has no stream for the daemon", stream)};
  }
  // kWideBytes: so that a result can lie as its inputs do.
  auto memory = driver_.allocate(&scratch_, kPieceBytes + kWideBytes);
  if (memory != Driver::kSuccess) scratch_ = 0;
  if (memory == Driver::kSuccess) memory = traces_.make(driver_, stream_);
  if (memory == Driver::kSuccess) memory = progress_.make(driver_);
  if (memory == Driver::kSuccess) return {};
  return {Code::kUnavailable,
          words("has no memory left for sums of the daemon", memory) +
              fmt::format(". Leave {} MiB of it to the daemon", kPieceBytes >> 20)};
}

// Whatever there is of it.
void Gpu::stop() {
  if (context_ == nullptr) return;
  {
    const Current current(*this);
    if (current.result() == Driver::kSuccess) {
      traces_.end(driver_);
      progress_.end(driver_);
      if (scratch_ != 0) driver_.free(scratch_);
      if (stream_ != nullptr) driver_.destroy_stream(stream_);
      if (module_ != nullptr) driver_.unload_module(module_);
    }
  }
  driver_.release_primary(device_);
  scratch_ = 0;
  stream_ = nullptr;
  module_ = nullptr;
  context_ = nullptr;
}

bool Gpu::has_way_to(const Gpu& peer) const {
  int can = 0;
  const auto asked = driver_.can_access_peer(&can, device_, peer.device_);
  return asked == Driver::kSuccess && can != 0;
}

bool Gpu::connect(const Gpu& peer) const {
  if (!has_way_to(peer)) return false;
  const Current current(*this);
  if (current.result() != Driver::kSuccess) return false;
  const auto result = driver_.enable_peer(peer.context_, 0);
  return result == Driver::kSuccess || result == Driver::kPeerAlready;
}

Driver::Address Gpu::room_for_sum_of(const void* input) const {
  return scratch_ + std::bit_cast<uintptr_t>(input) % kWideBytes;
}

Driver::Result Gpu::launch(Dtype dtype, ReduceOp op, FoldArguments arguments) const {
  void* parameters[] = {&arguments};
  const Kernels& kernels = arguments.scaled != 0 ? scaled_folds_ : folds_;
  const Kernel& kernel = kernels[static_cast<uint8_t>(dtype)][static_cast<uint8_t>(op)];
  return driver_.launch(kernel.function, fold_blocks(arguments, kernel.blocks), 1, 1, kBlockThreads,
                        1, 1, 0, stream_, parameters, nullptr);
}

}  // namespace gradring::transport::cuda
