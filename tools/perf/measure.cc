#include "tools/perf/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tools/common/output.h"
#include "tools/perf/buffers.h"
#include "tools/perf/pattern.h"

namespace gradring::tools {
namespace {

constexpr double kGoodSeconds = 0.3;
constexpr int kIterationsMin = 2, kIterationsMax = 20'000;
// A wait that takes this long is told, so that a silent neighbour is not mistaken for a slow
// network.
constexpr int64_t kPatienceMs = 4000;
// So that no two ops' buffers share one.
constexpr uint64_t kLine = 64;

gradring_op op_of(const Case& of, const Buffers& buffers, int ranks, const Blocks& blocks,
                  std::byte* memory) {
  gradring_op op{};
  op.struct_size = sizeof op;
  op.collective = static_cast<gradring_collective>(of.collective);
  op.dtype = static_cast<gradring_dtype>(of.dtype);
  op.op = static_cast<gradring_reduce_op>(of.op);
  op.root = of.root;
  op.count = count_of(of, ranks);
  if (blocks.uneven()) {
    op.counts = blocks.counts().data();
    op.counts_length = blocks.counts().size();
  }
  if (of.scale != 1) {
    op.prescale = of.scale;
    op.postscale = 1 / of.scale;
  }
  op.input = memory + buffers.input * size_of(of.dtype);
  op.output = memory + buffers.output * size_of(of.dtype);
  return op;
}

}  // namespace

int good_iterations(double seconds_each) {
  const double wanted = kGoodSeconds / std::max(seconds_each, 1e-9);
  return static_cast<int>(std::clamp<double>(wanted, kIterationsMin, kIterationsMax));
}

Meter::Meter(Communicator job, uint64_t largest, int together, const MemoryChoice& choice)
    : job_(std::move(job)),
      stride_((std::max<uint64_t>(largest, 1) + kLine - 1) / kLine * kLine),
      together_(together),
      memory_(job_, choice, stride_ * static_cast<uint64_t>(together)),
      number_(job_.allocate<int64_t>(1)) {}

template <typename Fill>
void Meter::fill(const Case& of, uint64_t at, uint64_t count, const Fill& with) {
  const uint64_t element = size_of(of.dtype);
  with(memory_.seen(at * element, count * element));
  memory_.put(at * element, count * element);
}

std::span<const std::byte> Meter::look_at(const Case& of, uint64_t at, uint64_t count) {
  const uint64_t element = size_of(of.dtype);
  memory_.get(at * element, count * element);
  return memory_.seen(at * element, count * element);
}

void Meter::wait_for(gradring_request request) {
  gradring_code code = GRADRING_ERR_DEADLINE;
  // Bounded by the daemon's op deadline, which ends the op.
  for (int64_t waited = 0; code == GRADRING_ERR_DEADLINE; waited += kPatienceMs) {
    if (waited > 0) {
      put_err(fmt::format(
          "gradring-perf: rank {} waits for {} s (\"gradringctl job NAME\" says for what)\n",
          job_.rank(), waited / 1000));
    }
    code = gradring_wait(job_.handle(), request, kPatienceMs, nullptr);
  }
  check(code);
}

gradring_request Meter::submit(gradring_op op) {
  if (memory_.gpu() != nullptr) op.stream = memory_.gpu()->stream();
  gradring_request request = 0;
  check(gradring_submit(job_.handle(), &op, &request));
  return request;
}

// As a trainer does it whose stream has the next thing to do with the result. An op without one, as
// a barrier, has no stream to wait for it.
void Meter::finish(std::span<const gradring_request> requests) {
  for (const gradring_request request : requests) {
    if (memory_.gpu() == nullptr) break;
    const gradring_code code =
        gradring_wait_on_stream(job_.handle(), request, memory_.gpu()->stream(), kPatienceMs);
    if (code != GRADRING_ERR_INVALID && code != GRADRING_ERR_DEADLINE) check(code);
  }
  for (const gradring_request request : requests) wait_for(request);
  if (memory_.gpu() != nullptr) memory_.gpu()->wait_for_stream();
}

void Meter::run(const Case& of) {
  const Blocks blocks = blocks_of(of, job_.size());
  const Buffers buffers = buffers_of(of, job_.rank(), job_.size());
  const gradring_request request = submit(op_of(of, buffers, job_.size(), blocks, memory_.named()));
  finish({&request, 1});
}

void Meter::run_together(const Case& of) {
  const Blocks blocks = blocks_of(of, job_.size());
  const Buffers buffers = buffers_of(of, job_.rank(), job_.size());
  requests_.clear();
  for (int i = 0; i < together_; ++i) {
    std::byte* const memory = memory_.named() + stride_ * static_cast<uint64_t>(i);
    requests_.push_back(submit(op_of(of, buffers, job_.size(), blocks, memory)));
  }
  finish(requests_);
}

double Meter::time(const Case& of, int iterations) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < iterations; ++i) run_together(of);
  const std::chrono::duration<double> total = std::chrono::steady_clock::now() - begin;
  return total.count() / (std::max(iterations, 1) * together_);
}

uint64_t Meter::wrong_everywhere(const Case& of) {
  if (of.count == 0) return run(of), 0;  // a barrier leaves nothing to look at
  const Pattern pattern(of, job_.rank(), job_.size());
  const Buffers buffers = buffers_of(of, job_.rank(), job_.size());
  if (!reduces(of.collective)) {
    fill(of, 0, buffers.elements, [&](auto memory) { pattern.fill_otherwise(memory); });
  }
  for (const Part& part : buffers.given) {
    fill(of, part.at, part.count, [&](auto memory) { pattern.fill(memory, part.first); });
  }
  run(of);
  uint64_t wrong = 0;
  for (const Part& part : buffers.expected) {
    wrong += pattern.wrong_elements(look_at(of, part.at, part.count), part.first);
  }
  number_[0] = static_cast<int64_t>(wrong);
  job_.allreduce(number_, GRADRING_SUM);
  return static_cast<uint64_t>(number_[0]);
}

Measurement Meter::measure(const Case& of, const Effort& effort) {
  Measurement result{of, effort.iters, 0, std::nullopt};
  if (effort.check) result.wrong = wrong_everywhere(of);
  // Repeated in place, other values would soon be infinite or denormal.
  const Buffers buffers = buffers_of(of, job_.rank(), job_.size());
  for (int i = 0; i < together_; ++i) {
    const uint64_t at = stride_ * static_cast<uint64_t>(i);
    const uint64_t bytes = buffers.elements * size_of(of.dtype);
    std::ranges::fill(memory_.seen(at, bytes), std::byte{0});
    memory_.put(at, bytes);
  }
  double last = 0;
  const bool chooses = effort.iters == 0;
  for (int i = 0; i < std::max(effort.warmup, chooses ? 1 : 0); ++i) last = time(of, 1);
  if (chooses) {
    number_[0] = good_iterations(last * together_);
    job_.broadcast(number_, 0);
    result.iterations = static_cast<int>(number_[0]);
  }
  job_.barrier();
  result.seconds = time(of, result.iterations);
  if (effort.check) *result.wrong += wrong_everywhere(of);
  return result;
}

}  // namespace gradring::tools
