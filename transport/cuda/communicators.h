#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "proto/status.h"
#include "proto/types.h"
#include "transport/cuda/gpu.h"
#include "transport/cuda/nccl.h"

namespace gradring::transport::cuda {

// NCCL among all GPUs of the daemon: a rank for each, in their order, with memory for the parts
// that it works on. Made and ended by anybody, else used by one thread.
class Communicators {
 public:
  // What one call takes at the most. NCCL attains most of a link's speed from some ten MiB on, and
  // each GPU has to have room for it.
  static constexpr uint64_t kPartBytes = uint64_t{32} << 20;
  // What is tried out when they are made, both ways: NCCL has other algorithms for other sizes.
  static constexpr std::array<uint64_t, 4> kTriedBytes = {kPartBytes, 1 << 20, 32 << 10, 1 << 10};

  // Takes seconds. All of them have started. kUnavailable: in words.
  static tl::expected<std::unique_ptr<Communicators>, Status> make(
      const std::vector<std::shared_ptr<Gpu>>& gpus);
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  // Whether it computes what the host does, but for the order of additions: it has no 16-bit sums
  // in float32, no NaN of minima, and nothing of bits.
  static bool takes(Dtype dtype, ReduceOp op);

  size_t size() const { return ranks_.size(); }
  const Gpu& gpu(size_t rank) const { return *ranks_[rank].gpu; }
  // size() shares of kPartBytes together at least, each aligned to kWideBytes.
  Driver::Address part(size_t rank) const { return ranks_[rank].part; }
  // "NCCL 2.28.9"
  std::string name() const { return "NCCL " + nccl_.version; }

  // Enqueued on the streams of all GPUs, or of none; an error is in words, and everything after it
  // fails. Each share is of so many elements.
  //   before: each rank has all shares; after: rank r has the sum of the r-th ones there.
  Status reduce_scatter(Dtype dtype, ReduceOp op, uint64_t share);
  //   before: rank r has the r-th share; after: each has all.
  Status all_gather(Dtype dtype, uint64_t share);

  // What went wrong since it was enqueued, as far as NCCL noticed.
  Status fault();
  // What is enqueued ends, with results that mean nothing; nothing more may be. NCCL takes its time
  // for it, on a thread of its own: whoever finds a fault is not to be missed by other nodes.
  void abort();

 private:
  struct Rank {
    std::shared_ptr<Gpu> gpu;
    Nccl::Comm comm = nullptr;
    Driver::Address part = 0;
  };

  Communicators(const Nccl& nccl, const std::vector<std::shared_ptr<Gpu>>& gpus);
  Status open();
  Status allocate();
  Status warm_up();
  Status try_out(uint64_t bytes);
  // Calls it for each rank, in its GPU's context, as one group; of so many bytes.
  template <typename Call>
  Status together(const char* what, uint64_t bytes, const Call& call);
  // Until NCCL has enqueued what it was told, which it does in threads of its own.
  Status settle(const char* what, std::chrono::seconds patience);
  Status refuse(const char* what, Nccl::Result result) const;
  // Whether NCCL has let go of all that was aborted; waits for that as Gpu::rest() does.
  bool let_go() const;

  const Nccl& nccl_;
  std::vector<Rank> ranks_;
  bool tried_out_ = false;
  std::future<void> aborting_;                         // not valid: nothing was aborted
  std::set<std::pair<std::string_view, int>> called_;  // what, and the magnitude of its bytes
};

}  // namespace gradring::transport::cuda
