// Functions of libcuda.so.1 for kernels, with the names of its cuda.h. There is one kind of kernels
// (transport/cuda/fold_kernels.cu), which is known by its name: the reducer does what it would.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/reduction.h"
#include "tests/client/cuda_twin_gpu.h"
#include "tests/transport/sum_findings.h"
#include "transport/cuda/fold_arguments.h"
#include "transport/reducer.h"

namespace {

using namespace gradring::test::twin;  // NOLINT: this is the driver of that
using gradring::Dtype;
using gradring::ReduceOp;
using gradring::transport::cuda::FoldArguments;
using gradring::transport::cuda::kWaves;
using gradring::transport::cuda::kWideBytes;

struct Function {
  Dtype dtype;
  ReduceOp op;
  bool scaled;
  bool loaded = false;

  int blocks_on_each() const { return scaled ? 2 : 3; }
};

// What a name begins with says whether factors have a part in it.
std::optional<bool> is_scaled(std::string_view* name) {
  for (const bool scaled : {false, true}) {
    const std::string_view prefix = scaled ? "gradring_scaled_fold_" : "gradring_fold_";
    if (name->substr(0, prefix.size()) != prefix) continue;
    name->remove_prefix(prefix.size());
    return scaled;
  }
  return std::nullopt;
}

// What a GPU would reach from there, at a boundary that its loads need.
int look_up(int number, const void* pointer, const Function& f, const FoldArguments& a,
            std::vector<char*>* found, std::deque<std::vector<char>>* lost) {
  const auto address = std::bit_cast<uint64_t>(pointer);
  const size_t element = size_of(f.dtype);
  const size_t count = a.loose + a.packs * (kWideBytes / element);
  char* const bytes = at(address, count * element);
  if (bytes == nullptr) return kIllegalAddress;
  const Range& range = range_of(address)->second;
  const bool peers = range.gpu == number || gpu().peers.count({number, range.gpu}) > 0;
  if (!peers && !range.mapped) return kIllegalAddress;  // that says itself who may have it
  if (!is_imported_for(number, address)) return kIllegalAddress;
  const bool wide = a.packs > 0 && (address + a.head * element) % kWideBytes != 0;
  if (wide || address % element != 0) return kMisaligned;
  const bool loses = range.gpu != number && wanted("peers lose") != kSuccess;
  found->push_back(loses ? lost->emplace_back(count * element).data() : bytes);
  return kSuccess;
}

// As trace() of transport/cuda/fold_trace.h does; false: there is no room for it.
bool leave_trace(Dtype dtype, const FoldArguments& a, const std::vector<const void*>& inputs,
                 const void* sum, size_t count) {
  using gradring::transport::cuda::FoldTrace;
  char* const there = at(std::bit_cast<uint64_t>(a.trace), sizeof(FoldTrace));
  if (there == nullptr) return false;
  const auto found =
      gradring::transport::sum_findings(dtype, sum, std::span(inputs).first(a.num_traced), count);
  if (!found) return true;
  FoldTrace trace;
  std::memcpy(&trace, there, sizeof trace);
  trace.first = std::max(trace.first, ~FoldTrace::Number{a.element + found->first});
  for (uint32_t r = 0; r < a.num_traced; ++r) {
    const auto& input = found->inputs[r];
    if (input.many == 0) continue;
    const uint64_t mark = 2 * (a.element + input.first) + (input.nan ? 0 : 1);
    trace.many[a.numbers[r]] += input.many;
    trace.first_of[a.numbers[r]] = std::max(trace.first_of[a.numbers[r]], ~FoldTrace::Number{mark});
  }
  std::memcpy(there, &trace, sizeof trace);
  uint32_t* const raised = word_at(std::bit_cast<uint64_t>(a.raised));
  if (raised == nullptr) return false;
  *raised = 1;
  return true;
}

int fold(int number, const Function& f, const FoldArguments& a) {
  std::vector<char*> outs, found;
  std::deque<std::vector<char>> lost;
  int result = kSuccess;
  for (uint32_t i = 0; i < a.num_outs && result == kSuccess; ++i) {
    result = look_up(number, a.outs[i], f, a, &outs, &lost);
  }
  for (uint32_t i = 0; i < a.num_inputs && result == kSuccess; ++i) {
    result = look_up(number, a.inputs[i], f, a, &found, &lost);
  }
  if (result != kSuccess) return result;
  const std::vector<const void*> inputs(found.begin(), found.end());
  const size_t count = a.loose + a.packs * (kWideBytes / size_of(f.dtype));
  if ((a.scaled != 0) != f.scaled) return kInvalidValue;  // the other kernel was to be launched
  gradring::transport::Scale scale;
  if (f.scaled) scale = {{a.factors, a.num_inputs}, a.factor};
  std::vector<char> sum(count * size_of(f.dtype));  // inputs are looked at before it is written
  gradring::transport::fold(f.dtype, f.op, inputs, sum.data(), count, a.divisor, scale);
  if (a.trace != nullptr && !leave_trace(f.dtype, a, inputs, sum.data(), count)) {
    return kIllegalAddress;
  }
  std::memcpy(outs[0], sum.data(), sum.size());
  for (char* const out : outs) std::memmove(out, outs[0], count * size_of(f.dtype));
  return kSuccess;
}

}  // namespace

// The names are the driver's.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

// Any image will do.
int cuModuleLoadData(void** module, const void* image) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuModuleLoadData"); result != kSuccess) return result;
  if (contexts.empty()) return kInvalidContext;
  if (image == nullptr) return kInvalidValue;
  *module = new char;
  gpu().modules.insert(*module);
  return kSuccess;
}

int cuModuleUnload(void* module) {
  const std::lock_guard lock(gpu().mutex);
  if (gpu().modules.erase(module) == 0) return kInvalidHandle;
  delete static_cast<char*>(module);
  return kSuccess;
}

// They are never taken away, as those of a module are.
int cuModuleGetFunction(void** function, void* module, const char* name) {
  const std::lock_guard lock(gpu().mutex);
  if (gpu().modules.count(module) == 0) return kInvalidHandle;
  static std::map<std::string, Function> functions;
  std::string_view numbers = name;
  const std::optional<bool> scaled = is_scaled(&numbers);
  if (!scaled) return kNotFound;
  char* behind = nullptr;
  const long dtype = std::strtol(name + std::strlen(name) - numbers.size(), &behind, 10);
  if (*behind != '_') return kNotFound;
  const long op = std::strtol(behind + 1, &behind, 10);
  if (*behind != '\0') return kNotFound;
  const Function named = {static_cast<Dtype>(dtype), static_cast<ReduceOp>(op), *scaled};
  const bool there = named.op != ReduceOp::kAverage && can_reduce(named.dtype, named.op).ok() &&
                     (!named.scaled || is_float(named.dtype));
  if (!there) return kNotFound;
  *function = &functions.try_emplace(name, named).first->second;
  return kSuccess;
}

int cuFuncLoad(void* function) {
  const std::lock_guard lock(gpu().mutex);
  static_cast<Function*>(function)->loaded = true;
  return kSuccess;
}

// So many of each of its two multiprocessors: fewer where there are factors, which take registers.
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function, int threads,
                                                size_t shared) {
  const std::lock_guard lock(gpu().mutex);
  if (function == nullptr || threads <= 0 || shared != 0) return kInvalidValue;
  *blocks = static_cast<const Function*>(function)->blocks_on_each();
  return kSuccess;
}

// Of a kernel that is loaded: a driver would load it now, and wait for what else the GPU does. And
// of no more blocks than what there is room for of this kernel, so many times.
int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned, void* stream,
                   void** parameters, void** extra) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuLaunchKernel"); result != kSuccess) return result;
  const auto threads = uint64_t{block_x} * block_y * block_z;
  const bool shaped = grid_x > 0 && grid_y == 1 && grid_z == 1 && threads > 0 && threads <= 1024;
  if (function == nullptr || !shaped || extra != nullptr) return kInvalidValue;
  const auto* const known = static_cast<const Function*>(function);
  const unsigned room = kWaves * static_cast<unsigned>(known->blocks_on_each() * kMultiprocessors);
  if (!known->loaded || grid_x > room) return kInvalidValue;
  if (contexts.empty()) return kInvalidContext;
  return enqueue_work(stream, [number = gpu_of(contexts.back()), kernel = *known,
                               arguments = *static_cast<const FoldArguments*>(parameters[0])] {
    const int result = fold(number, kernel, arguments);
    if (result != kSuccess) gpu().faults.at(static_cast<size_t>(number)) = result;
    return result;
  });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
