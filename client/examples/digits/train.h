#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "client/examples/digits/dataset.h"
#include "client/examples/digits/exchange.h"
#include "client/examples/digits/model.h"

namespace digits {

// What all ranks must agree on; `batch` counts the samples of all ranks together, so that the run
// is the same sequence of steps however many ranks share it.
struct Recipe {
  size_t epochs = 30;
  size_t batch = 64;
  uint64_t seed = 1;
  float rate = 0.05f;
  float momentum = 0.9f;
  std::chrono::milliseconds step_delay{0};  // slept in every step, for watching and for tests
};

struct Step {
  size_t number = 0;  // from 0, over the whole run
  size_t total = 0;
  size_t epoch = 0;  // from 0
  double loss = 0;   // mean over the global batch
};

// The half-open range of a batch of `count` samples that belongs to the rank at `position` of
// `size`: contiguous, and no rank has more than one sample more than another.
struct Shard {
  size_t begin, end;
};
Shard shard_of(size_t count, int position, int size);

// Stochastic gradient descent with momentum, in step with all ranks of the exchange. Throws what
// the exchange throws.
void train(Model& model, const Dataset& data, const Recipe& recipe, Exchange& exchange,
           const std::function<void(const Step&)>& on_step);

}  // namespace digits
