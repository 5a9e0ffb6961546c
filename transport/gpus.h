#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "proto/status.h"
#include "proto/types.h"
#include "transport/transport.h"

namespace gradring::transport {

// Memory of a GPU that its process lets others open.
struct GpuShare {
  // Of the allocation that it lies in, by one of two: CUipcMemHandle; or a descriptor of CUDA's,
  // which remains the caller's, and of which it is the beginning (-1: none).
  std::array<std::byte, 64> handle{};
  int descriptor = -1;
  std::array<std::byte, 16> gpu{};  // CUuuid: indices differ from process to process
  uint64_t offset = 0;              // within the allocation, in bytes
  uint64_t bytes = 0;
};

// Memory of a GPU, open in this process until the object ends. Whose it is may die first.
class OpenGpuMemory {
 public:
  virtual ~OpenGpuMemory() = default;
  virtual uint64_t bytes() const = 0;
  // Where it lies: GPUs are numbered from 0.
  virtual size_t gpu() const { return 0; }
  // For a transport that reaches GPUs; to everybody else it is no address.
  virtual std::byte* address() const { return nullptr; }
};

struct GpuRange {
  const OpenGpuMemory* memory = nullptr;
  uint64_t offset = 0;  // bytes
};

// What the GPUs of this machine do for the daemon with memory of its trainers: they sum it into the
// host's, and spread the host's over it. Nothing here waits for a GPU.
class Gpus {
 public:
  virtual ~Gpus() = default;

  // ---- any thread ----
  // "2 GPUs, NVIDIA H100 80GB HBM3", for people.
  virtual std::string name() const = 0;
  // How sums of several GPUs are made, likewise: "by NCCL 2.28.9". Settled once start() is over.
  virtual std::string way() const = 0;
  // Whether kernels of the daemon run beside those of trainers, as MPS has them; else all of a
  // GPU's processes take turns, of milliseconds.
  virtual bool under_mps() const = 0;
  // Why nothing is begun any more, in words; ok while they work. They never do again, and what is
  // under way may not end.
  virtual Status fault() const { return {}; }
  // Takes of each GPU what it needs, which is some hundred megabytes and may last for seconds; else
  // whoever first opens memory of it waits so long. What cannot be had now is tried again then.
  virtual Status start() = 0;
  // The calling thread may use a transport that reaches GPUs, as long as the result lives; it ends
  // there. One of them has started.
  virtual tl::expected<std::shared_ptr<const void>, Status> enter() = 0;
  // kInvalidArgument: it is none of these GPUs, or not that many bytes. kUnavailable: the GPU would
  // not, in words for its trainer.
  virtual tl::expected<std::shared_ptr<const OpenGpuMemory>, Status> open(
      const GpuShare& share) = 0;
  // Of the daemon's own, on a GPU that is started.
  virtual tl::expected<std::shared_ptr<const OpenGpuMemory>, Status> allocate(size_t gpu,
                                                                              uint64_t bytes) = 0;
  virtual size_t count() const = 0;
  virtual std::array<std::byte, 16> uuid(size_t gpu) const = 0;  // CUuuid
  // Whether all of them lend their memory to cards as DMA-BUFs.
  virtual bool lend_dmabufs() const = 0;
  // Whether this GPU can work with the memory of all of these.
  virtual bool reaches(size_t gpu, std::span<const GpuRange> ranges) const = 0;
  // Host memory for sums and from which is spread: pinned until the registration ends, for all of
  // them. A driver may wait for the GPU `by` which it is, if that can do it, when it unpins it.
  virtual tl::expected<std::unique_ptr<Registration>, Status> make_ready(
      std::span<std::byte> memory, std::optional<size_t> by) = 0;

  // ---- one thread ----
  // The sum of `inputs` in this order, as fold() of transport/reducer.h makes it; of one that is
  // not scaled it is a copy.
  struct Sum {
    Dtype dtype = Dtype::kFloat32;
    ReduceOp op = ReduceOp::kSum;
    std::span<const GpuRange> inputs;  // kGpuInputsMax at most; each aligned to its elements
    std::byte* out = nullptr;          // of the host, made ready
    uint64_t count = 0;                // elements
    // By which each input is multiplied, floats alone; those behind, and so all if there are none,
    // are not.
    std::span<const double> factors = {};
  };
  // Likewise, but the result goes to all outputs at once, divided by `divisor` if that is not 0 and
  // then multiplied by `factor` (floats alone): an output may be one of the inputs, or not overlap
  // any of them.
  struct Allreduce {
    Dtype dtype = Dtype::kFloat32;
    ReduceOp op = ReduceOp::kSum;
    std::span<const GpuRange> inputs;   // as above
    std::span<const GpuRange> outputs;  // as many at the most, and as aligned
    uint32_t divisor = 0;
    uint64_t count = 0;                    // elements
    std::span<const double> factors = {};  // as above
    double factor = 1;
    // The GPU that does it by itself, and it reaches all of these: then after all that was begun
    // before in memory of this GPU alone. None: any, or several.
    std::optional<size_t> on = {};
  };
  struct Spread {
    const std::byte* from = nullptr;  // of the host, made ready
    std::span<const GpuRange> outputs;
    uint64_t bytes = 0;
  };
  // Copies by a kernel: what is moved has no type of its own. `from` outlives the order.
  static Sum copy(const GpuRange& from, std::byte* out, uint64_t bytes) {
    return {Dtype::kUint8, ReduceOp::kMax, {&from, 1}, out, bytes};
  }
  static Allreduce copy(const GpuRange& from, std::span<const GpuRange> outputs, uint64_t bytes) {
    return {Dtype::kUint8, ReduceOp::kMax, {&from, 1}, outputs, 0, bytes};
  }
  // Begins it; all memory stays lent until take_ended() has told of this ticket, once. In the order
  // in which they began where they touch the same memory of the host: across GPUs what comes later
  // begins once take_ended() has seen that the other is over. Refused: nothing was begun.
  virtual Status begin(const Sum& sum, uint64_t ticket) = 0;
  virtual Status begin(const Allreduce& allreduce, uint64_t ticket) = 0;
  virtual Status begin(const Spread& spread, uint64_t ticket) = 0;

  // Of a sum of floats, whose inputs may be overwritten by the time that anybody could look at
  // them; in elements of the sum. What is copied, since it is one input alone, is not looked at.
  struct Nonfinite {
    struct Input {
      uint64_t many = 0;   // elements that are NaN or infinite, where the result is so too
      uint64_t first = 0;  // of them, if there are any
      bool nan = false;    // that one is
    };
    uint64_t first = 0;  // of the result; where no input is so there, the sum outgrew its type
    std::vector<Input> inputs;
  };
  struct Ended {
    uint64_t ticket = 0;
    Status status;  // an error: the GPU failed, and everything after it will
    std::optional<Nonfinite> nonfinite = {};  // none: all of the result is finite
  };
  // What has ended since the last time is added to `ended`.
  virtual void take_ended(std::vector<Ended>* ended) = 0;
  // Something that was begun has not been told to have ended.
  virtual bool busy() const = 0;
};

inline constexpr size_t kGpuInputsMax = 64;

}  // namespace gradring::transport
