#include "client/examples/digits/through_gradring.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace digits {
namespace {

// A wait that takes this long is told, so that a stopped neighbour is not mistaken for a hang here.
constexpr int64_t kPatienceMs = 2000;

void check(gradring_code code, const std::string& doing) {
  if (code != GRADRING_OK) {
    throw std::runtime_error(fmt::format("{}: {}", doing, gradring_last_error()));
  }
}

gradring_comm* open(const gradring_options& options) {
  gradring_comm* comm = nullptr;
  check(gradring_open(&options, &comm), "joining the job");
  return comm;
}

template <typename T>
T* allocate(gradring_comm* comm, size_t count) {
  void* memory = nullptr;
  check(gradring_alloc(comm, count * sizeof(T), &memory), "allocating shared memory");
  return static_cast<T*>(memory);
}

gradring_op in_place(gradring_collective collective, gradring_dtype dtype, void* memory,
                     size_t count) {
  gradring_op op{};
  op.struct_size = sizeof op;
  op.collective = collective;
  op.dtype = dtype;
  op.count = count;
  op.input = op.output = memory;
  return op;
}

}  // namespace

ThroughGradring::ThroughGradring(const gradring_options& options, const Model& model)
    : comm_(open(options)), loss_(allocate<double>(comm_.get(), 1)) {
  for (size_t layer = 0; layer < model.layers(); ++layer) {
    const size_t count = model.parameters(layer).size();
    gradients_.emplace_back(allocate<float>(comm_.get(), count), count);
  }
}

// The memory for gradients serves for the parameters too: it is free until the first step.
void ThroughGradring::broadcast(Model& model) {
  for (size_t layer = 0; layer < model.layers(); ++layer) {
    const auto shared = gradients_[layer];
    std::ranges::copy(model.parameters(layer), shared.begin());
    auto op = in_place(GRADRING_BROADCAST, GRADRING_FLOAT32, shared.data(), shared.size());
    op.root = 0;
    submit(op, fmt::format("the initial weights of layer {}", layer));
  }
  wait_all();
  for (size_t layer = 0; layer < model.layers(); ++layer) {
    std::ranges::copy(gradients_[layer], model.parameters(layer).begin());
  }
}

void ThroughGradring::start(size_t layer) {
  const auto gradient = gradients_[layer];
  auto op = in_place(GRADRING_ALLREDUCE, GRADRING_FLOAT32, gradient.data(), gradient.size());
  op.op = GRADRING_SUM;  // each rank has scaled its part by the global batch: the sum is the mean
  submit(op, fmt::format("the gradient of layer {}", layer));
}

double ThroughGradring::finish(double loss) {
  *loss_ = loss;
  auto op = in_place(GRADRING_ALLREDUCE, GRADRING_FLOAT64, loss_, 1);
  op.op = GRADRING_SUM;
  submit(op, "the loss");
  wait_all();
  return *loss_;
}

void ThroughGradring::barrier() {
  submit(in_place(GRADRING_BARRIER, GRADRING_UINT8, nullptr, 0), "the other ranks to finish");
  wait_all();
}

void ThroughGradring::submit(gradring_op op, std::string what) {
  gradring_request request = 0;
  check(gradring_submit(comm_.get(), &op, &request), "submitting " + what);
  pending_.push_back({request, std::move(what)});
}

void ThroughGradring::wait_all() {
  for (const Pending& one : pending_) {
    gradring_code code = GRADRING_ERR_DEADLINE;
    // Bounded by the daemon's op deadline, which ends the op.
    for (int64_t waited = 0; code == GRADRING_ERR_DEADLINE; waited += kPatienceMs) {
      if (waited > 0) {
        fmt::print(stderr,
                   "rank {}: waiting for {} for {} s (ask \"gradringctl jobs\" who is late)\n",
                   rank(), one.what, waited / 1000);
      }
      code = gradring_wait(comm_.get(), one.request, kPatienceMs, nullptr);
    }
    check(code, "waiting for " + one.what);
  }
  pending_.clear();
}

}  // namespace digits
