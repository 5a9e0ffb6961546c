#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "proto/status.h"
#include "proto/types.h"
#include "transport/cuda/driver.h"
#include "transport/cuda/fold_arguments.h"
#include "transport/cuda/progress.h"
#include "transport/cuda/traces.h"

namespace gradring::transport::cuda {

// The most that is folded at once: a kernel for so much takes longer to run than to launch, and
// what it needs for its result is small beside what a trainer leaves free. The copy of one piece to
// the host takes some 80 us, so that others on the stream do not wait long either.
inline constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
// Where nothing goes to the host: between two kernels a GPU rests for some microseconds, and for
// this it takes 100 us.
inline constexpr uint64_t kPieceThereBytes = uint64_t{64} << 20;

// One GPU: its primary context, a stream in it, memory for a piece of a result and for what kernels
// find, and the kernels. It has none of them before start(), since a context takes hundreds of
// megabytes that its trainers may want.
class Gpu {
 public:
  // `kernels`: the image of a module; empty: there are none.
  Gpu(const Driver& driver, Driver::Device device, unsigned index,
      std::span<const std::byte> kernels);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // "NVIDIA H100 80GB HBM3"
  const std::string& name() const { return name_; }
  const Driver::Uuid& uuid() const { return uuid_; }
  const Driver& driver() const { return driver_; }
  Driver::Device device() const { return device_; }
  unsigned index() const { return index_; }
  uint64_t bit() const { return uint64_t{1} << index_; }

  // Its memory to cards.
  bool lends_dmabufs() const;
  // Whether it takes the kernels, as far as that can be told now. Holds on to nothing.
  Status takes_kernels();
  // Whether contexts on it are shared by MPS, so that kernels of several processes run at once.
  bool under_mps() const;
  // One thread at a time for this and connect(). Failed: as before, and may be tried again.
  // `alone`: no other kernels than ours will run in the context, which then takes less memory.
  Status start(bool alone);
  bool started() const { return started_; }
  // Whether the machine has a way for its kernels to another's memory. Any thread.
  bool has_way_to(const Gpu& peer) const;
  // From now on its kernels may read what `peer` has allocated, where the machine has a way for
  // them; whether they find it there is for whoever tries it (reach()). Both have started.
  bool connect(const Gpu& peer) const;
  void count_as_reached(const Gpu& peer) { reached_.fetch_or(peer.bit()); }

  // ---- any thread, after start() ----
  Driver::Stream stream() const { return stream_; }
  // Of GPUs by their bits, itself among them.
  bool reaches(uint64_t gpus) const { return (gpus & ~(reached_.load() | bit())) == 0; }
  // Room for a result of kPieceBytes, which lies between boundaries as `input` does.
  Driver::Address room_for_sum_of(const void* input) const;
  // Enqueues a fold; at least one element. Only what can_reduce(), and is of floats if it is
  // scaled.
  Driver::Result launch(Dtype dtype, ReduceOp op, FoldArguments arguments) const;

  // Of the thread that begins something.
  Traces& traces() { return traces_; }
  Progress& progress() { return progress_; }

  // Waits until what was begun has ended. False: it has not within some seconds, and never will;
  // then the next wait is short.
  bool rest() const;

  // The calling thread is in the context as long as this lives, and then in its own again.
  class Current {
   public:
    explicit Current(const Gpu& gpu);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    Driver::Result result() const { return result_; }

   private:
    const Driver& driver_;
    const Driver::Result result_;
  };

  // "NVIDIA H100 80GB HBM3 (GPU-8d5a...) WHAT: CUDA_ERROR_ILLEGAL_ADDRESS"
  std::string words(std::string_view what, Driver::Result result) const;

 private:
  Status load();
  Status make(bool alone);
  Driver::Result find_kernels();
  void stop();

  const Driver& driver_;
  const Driver::Device device_;
  const unsigned index_;
  const std::span<const std::byte> kernels_;
  std::string name_;
  Driver::Uuid uuid_{};

  bool started_ = false;
  mutable std::atomic<bool> hangs_ = false;
  Driver::Context context_ = nullptr;
  Driver::Module module_ = nullptr;
  Driver::Stream stream_ = nullptr;
  Driver::Address scratch_ = 0;
  Traces traces_;
  Progress progress_;
  struct Kernel {
    Driver::Function function = nullptr;
    unsigned blocks = 0;  // that the GPU holds at once
  };
  using Kernels = std::array<std::array<Kernel, kReduceOpLast + 1>, kDtypeLast + 1>;
  Driver::Result find_kernels(const char* prefix, bool floats_alone, Kernels* kernels);
  Driver::Result find(const std::string& name, Kernel* kernel) const;
  Kernels folds_{}, scaled_folds_{};
  std::atomic<uint64_t> reached_ = 0;  // bits of others
};

// More are in no machine.
inline constexpr unsigned kGpusMax = 64;

// "GPU-8d5a23c4-...", as nvidia-smi writes it.
std::string in_words(const Driver::Uuid& uuid);

}  // namespace gradring::transport::cuda
