#include "client/examples/digits/through_gradring.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace digits {
namespace {

// A wait that takes this long is told, so that a stopped neighbour is not mistaken for a hang here.
constexpr std::chrono::seconds kPatience{2};

}  // namespace

ThroughGradring::ThroughGradring(const Model& model, const gradring_options& options)
    : job_(options), loss_(job_.allocate<double>(1)) {
  for (size_t layer = 0; layer < model.layers(); ++layer) {
    auto& buffer = gradients_.emplace_back(job_.allocate<float>(model.parameters(layer).size()));
    spans_.emplace_back(buffer.data(), buffer.size());
  }
}

// The memory for gradients serves for the parameters too: it is free until the first step.
void ThroughGradring::broadcast(Model& model) {
  for (size_t layer = 0; layer < model.layers(); ++layer) {
    std::ranges::copy(model.parameters(layer), spans_[layer].begin());
    pending_.push_back({fmt::format("the initial weights of layer {}", layer),
                        job_.start_broadcast(gradients_[layer], 0)});
  }
  wait_all();
  for (size_t layer = 0; layer < model.layers(); ++layer) {
    std::ranges::copy(spans_[layer], model.parameters(layer).begin());
  }
}

// Each rank has scaled its part by the size of the global batch, so the sum is the mean.
void ThroughGradring::start(size_t layer) {
  // By its name the daemon knows it again in the next step: what an 8-bit wire type takes away from
  // it now, is added then.
  const std::string name = fmt::format("gradient {}", layer);
  pending_.push_back({fmt::format("the gradient of layer {}", layer),
                      job_.start_allreduce(gradients_[layer], GRADRING_SUM, name.c_str())});
}

double ThroughGradring::finish(double loss) {
  loss_[0] = loss;
  pending_.push_back({"the loss", job_.start_allreduce(loss_, GRADRING_SUM)});
  wait_all();
  return loss_[0];
}

void ThroughGradring::barrier() {
  pending_.push_back({"the other ranks to finish", job_.start_barrier()});
  wait_all();
}

// Bounded by the daemon's op deadline, which ends the op.
void ThroughGradring::wait_all() {
  for (Pending& one : pending_) {
    for (int waited = 1; !one.request.wait_for(kPatience); ++waited) {
      fmt::print(stderr,
                 "rank {}: waiting for {} for {} s (\"gradringctl job NAME\" says who is late)\n",
                 rank(), one.what, waited * kPatience.count());
    }
  }
  pending_.clear();
}

}  // namespace digits
