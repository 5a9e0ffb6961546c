#include "transport/cuda/joint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <vector>

#include "transport/cuda/opened.h"

namespace gradring::transport::cuda {
namespace {

bool are_on_all(const Communicators& all, std::span<const GpuRange> ranges) {
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto here = [&](const GpuRange& range) { return &gpu_of(range) == &all.gpu(rank); };
    if (std::none_of(ranges.begin(), ranges.end(), here)) return false;
  }
  return true;
}

// Elements of a share where so many are cut for all ranks, aligned like the memory of a rank.
uint64_t share_of(const Communicators& all, uint64_t count, size_t element) {
  const uint64_t wide = kWideBytes / element;
  const uint64_t share = (count + all.size() - 1) / all.size();
  return (share + wide - 1) / wide * wide;
}

// What of so many a rank's share really holds: the last ones may be shorter, or empty.
struct Piece {
  uint64_t first = 0;
  uint64_t count = 0;
};
Piece piece_of(size_t rank, uint64_t share, uint64_t count) {
  const uint64_t first = std::min(rank * share, count);
  return {first, std::min(share, count - first)};
}

// Does it for each rank in its GPU's context, until one fails.
Status for_each_rank(const Communicators& all,
                     const std::function<Driver::Result(size_t, const Gpu&)>& act) {
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Gpu& gpu = all.gpu(rank);
    const Gpu::Current current(gpu);
    auto result = current.result();
    if (result == Driver::kSuccess) result = act(rank, gpu);
    if (result != Driver::kSuccess) {
      return {Code::kUnavailable, gpu.words("took no work of the daemon", result)};
    }
  }
  return {};
}

// The fold of what of `from` lies on this GPU, to all of `to` there.
class LocalFold {
 public:
  // From this element of the sum on.
  LocalFold(Dtype dtype, ReduceOp op, const Watch& watch, uint64_t first)
      : dtype_(dtype), op_(op), watch_(watch), first_(first) {}
  // `factors`: of each range, or of none.
  void from(const Gpu& gpu, std::span<const GpuRange> ranges, std::span<const double> factors,
            uint64_t at) {
    for (size_t i = 0; i < ranges.size(); ++i) {
      if (&gpu_of(ranges[i]) != &gpu) continue;
      numbers_.push_back(static_cast<uint8_t>(i));
      from(address_of(ranges[i], gpu) + at, i < factors.size() ? factors[i] : 1);
    }
  }
  void from(Driver::Address address, double factor = 1) {
    ins_.push_back(std::bit_cast<const void*>(address));
    factors_.push_back(factor);
  }
  void to(const Gpu& gpu, std::span<const GpuRange> ranges, uint64_t at) {
    for (const GpuRange& range : ranges) {
      if (&gpu_of(range) == &gpu) to(address_of(range, gpu) + at);
    }
  }
  void to(Driver::Address address) { outs_.push_back(std::bit_cast<void*>(address)); }
  Driver::Result launch(const Gpu& gpu, uint64_t count, uint32_t divisor = 0,
                        double factor = 1) const {
    if (outs_.empty()) return Driver::kSuccess;
    FoldArguments arguments =
        fold_arguments(dtype_, ins_, outs_, count, divisor, {factors_, factor});
    watch_.put(&arguments, first_, numbers_);
    return gpu.launch(dtype_, op_, arguments);
  }

 private:
  const Dtype dtype_;
  const ReduceOp op_;
  const Watch watch_;
  const uint64_t first_;
  std::vector<const void*> ins_;
  std::vector<uint8_t> numbers_;  // of ranges
  std::vector<double> factors_;
  std::vector<void*> outs_;
};

// Afterwards each rank's share in its part is the sum of all inputs there.
template <typename Order>
Status scatter(Communicators& all, const Order& order, std::span<const Watch> watches,
               uint64_t done, uint64_t count, uint64_t share) {
  const uint64_t at = done * size_of(order.dtype);
  Status status = for_each_rank(all, [&](size_t rank, const Gpu& gpu) {
    LocalFold fold(order.dtype, order.op, watches[rank], done);
    fold.from(gpu, order.inputs, order.factors, at);
    fold.to(all.part(rank));
    return fold.launch(gpu, count);
  });
  return status.ok() ? all.reduce_scatter(order.dtype, order.op, share) : status;
}

}  // namespace

bool takes(const Communicators& all, const Gpus::Sum& sum) {
  return Communicators::takes(sum.dtype, sum.op) && are_on_all(all, sum.inputs);
}

bool takes(const Communicators& all, const Gpus::Allreduce& allreduce) {
  return Communicators::takes(allreduce.dtype, allreduce.op) && are_on_all(all, allreduce.inputs);
}

bool takes(const Communicators& all, const Gpus::Spread& spread) {
  return are_on_all(all, spread.outputs);
}

Status enqueue_jointly(Communicators& all, const Gpus::Sum& sum, std::span<const Watch> watches) {
  const size_t element = size_of(sum.dtype);
  for (uint64_t done = 0; done < sum.count;) {
    const uint64_t count = std::min(sum.count - done, Communicators::kPartBytes / element);
    const uint64_t share = share_of(all, count, element);
    Status status = scatter(all, sum, watches, done, count, share);
    if (status.ok()) {
      status = for_each_rank(all, [&](size_t rank, const Gpu& gpu) {
        const Piece piece = piece_of(rank, share, count);
        if (piece.count == 0) return Driver::kSuccess;
        const Driver::Address sums = all.part(rank) + rank * share * element;
        if (watches[rank].trace != nullptr) {  // NCCL does not say what has outgrown its type
          LocalFold look(sum.dtype, sum.op, watches[rank], done + piece.first);
          look.from(sums);
          look.to(sums);
          const auto looked = look.launch(gpu, piece.count);
          if (looked != Driver::kSuccess) return looked;
        }
        return gpu.driver().copy_to_host(sum.out + (done + piece.first) * element, sums,
                                         piece.count * element, gpu.stream());
      });
    }
    if (!status.ok()) return status;
    done += count;
  }
  return {};
}

Status enqueue_jointly(Communicators& all, const Gpus::Allreduce& allreduce,
                       std::span<const Watch> watches) {
  const size_t element = size_of(allreduce.dtype);
  for (uint64_t done = 0; done < allreduce.count;) {
    const uint64_t count = std::min(allreduce.count - done, Communicators::kPartBytes / element);
    const uint64_t share = share_of(all, count, element);
    Status status = scatter(all, allreduce, watches, done, count, share);
    if (status.ok()) status = all.all_gather(allreduce.dtype, share);
    if (status.ok()) {
      // A fold of one is a copy, but for the divisor, the factor, and NaNs, of which there is one.
      status = for_each_rank(all, [&](size_t rank, const Gpu& gpu) {
        LocalFold fold(allreduce.dtype, allreduce.op, watches[rank], done);
        fold.from(all.part(rank));
        fold.to(gpu, allreduce.outputs, done * element);
        return fold.launch(gpu, count, allreduce.divisor, allreduce.factor);
      });
    }
    if (!status.ok()) return status;
    done += count;
  }
  return {};
}

Status enqueue_jointly(Communicators& all, const Gpus::Spread& spread) {
  for (uint64_t done = 0; done < spread.bytes;) {
    const uint64_t bytes = std::min(spread.bytes - done, Communicators::kPartBytes);
    const uint64_t share = share_of(all, bytes, 1);
    Status status = for_each_rank(all, [&](size_t rank, const Gpu& gpu) {
      const Piece piece = piece_of(rank, share, bytes);
      if (piece.count == 0) return Driver::kSuccess;
      return gpu.driver().copy_to_device(all.part(rank) + rank * share,
                                         spread.from + done + piece.first, piece.count,
                                         gpu.stream());
    });
    if (status.ok()) status = all.all_gather(Dtype::kUint8, share);
    if (status.ok()) {
      status = for_each_rank(all, [&](size_t rank, const Gpu& gpu) {
        auto result = Driver::kSuccess;
        for (const GpuRange& output : spread.outputs) {
          if (&gpu_of(output) != &gpu || result != Driver::kSuccess) continue;
          result = gpu.driver().copy_between(address_of(output, gpu) + done, all.part(rank), bytes,
                                             gpu.stream());
        }
        return result;
      });
    }
    if (!status.ok()) return status;
    done += bytes;
  }
  return {};
}

}  // namespace gradring::transport::cuda
