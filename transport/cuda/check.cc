#include "transport/cuda/check.h"

#include <fmt/format.h>

#include "proto/reduction.h"
#include "transport/cuda/fold_arguments.h"
#include "transport/cuda/opened.h"

namespace gradring::transport::cuda {
namespace {

Status refuse(std::string why) { return {Code::kInvalidArgument, std::move(why)}; }

// `count` elements of `element` bytes.
Status check(const GpuRange& range, size_t element, uint64_t count) {
  if (range.memory == nullptr) return refuse("memory of a GPU is missing: open it first");
  const uint64_t bytes = range.memory->bytes();
  if (range.offset > bytes || count > (bytes - range.offset) / element) {
    return refuse(
        fmt::format("{} elements of {} bytes from byte {} on do not fit into {} bytes of "
                    "a GPU's memory that are open",
                    count, element, range.offset, bytes));
  }
  const auto begin = address_of(range, gpu_of(range));
  if (begin % element == 0) return {};
  return refuse(
      fmt::format("memory of a GPU lies at {:#x}, which is not aligned to its elements of "
                  "{} bytes",
                  begin, element));
}

Status check_many(size_t many, const char* what) {
  if (many > 0 && many <= kGpuInputsMax) return {};
  return refuse(
      fmt::format("a sum of GPUs has {} {}; give at least one, and {} at the most: run fewer ranks "
                  "on this node",
                  many, what, kGpuInputsMax));
}

Status check(const Scale& scale, Dtype dtype) {
  if (is_float(dtype) || !scales(scale)) return {};
  return refuse("only floats are multiplied by a factor");
}

Status check_all(std::span<const GpuRange> ranges, size_t element, uint64_t count) {
  for (const GpuRange& range : ranges) {
    Status status = check(range, element, count);
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace

Status check(const Gpus::Sum& sum) {
  if (Status status = check_many(sum.inputs.size(), "inputs"); !status.ok()) return status;
  const size_t element = size_of(sum.dtype);
  if (element == 0) return can_reduce(sum.dtype, sum.op);  // which says that there is no such type
  // One is copied, whatever it is made of.
  if (sum.inputs.size() > 1 || scales({sum.factors})) {
    Status status = can_reduce(sum.dtype, sum.op);
    if (status.ok()) status = check(Scale{sum.factors}, sum.dtype);
    if (!status.ok()) return status;
  }
  if (Status status = check_all(sum.inputs, element, sum.count); !status.ok()) return status;
  if (sum.out == nullptr && sum.count > 0)
    return refuse("a sum of GPUs has no memory for its result");
  return {};
}

Status check(const Gpus::Allreduce& all) {
  if (Status status = check_many(all.inputs.size(), "inputs"); !status.ok()) return status;
  if (Status status = check_many(all.outputs.size(), "outputs"); !status.ok()) return status;
  if (Status status = can_reduce(all.dtype, all.op); !status.ok()) return status;
  if (all.divisor != 0 && !is_float(all.dtype)) return refuse("only floats are divided");
  if (Status status = check(Scale{all.factors, all.factor}, all.dtype); !status.ok()) return status;
  const size_t element = size_of(all.dtype);
  if (Status status = check_all(all.inputs, element, all.count); !status.ok()) return status;
  return check_all(all.outputs, element, all.count);
}

Status check(const Gpus::Spread& spread) {
  for (const GpuRange& output : spread.outputs) {
    Status status = check(output, 1, spread.bytes);
    if (!status.ok()) return status;
  }
  if (spread.from == nullptr && spread.bytes > 0) {
    return refuse("there is no memory to spread over GPUs");
  }
  return {};
}

}  // namespace gradring::transport::cuda
