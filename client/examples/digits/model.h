#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "client/examples/digits/dataset.h"

namespace digits {

// A multi-layer perceptron: dense layers with ReLU between them, softmax and cross entropy at the
// end. Plain float32 loops, so that the same samples in the same order give the same bits
// everywhere.
class Model {
 public:
  // Widths from the input to the output, e.g. {64, 128, 64, 10}. The weights depend on `seed`
  // alone.
  Model(std::vector<size_t> widths, uint64_t seed);

  size_t layers() const { return widths_.size() - 1; }
  // Weights, one row of outputs for each input, then the biases.
  std::span<float> parameters(size_t layer) { return parameters_[layer]; }
  std::span<const float> parameters(size_t layer) const { return parameters_[layer]; }

  using Gradients = std::span<const std::span<float>>;  // one a layer, as long as its parameters
  // Writes the gradient of `share` x (sum of the losses of `samples`), last layer first, and calls
  // ready(layer) as soon as that layer's is complete. Returns the value it is the gradient of. With
  // share = 1 / (size of the global batch) the ranks' results add up to the global mean.
  double backward(const Dataset& data, std::span<const uint32_t> samples, float share,
                  Gradients gradients, const std::function<void(size_t layer)>& ready);

  // Of all parameters' bits: equal where the models are, for people to compare.
  uint64_t hash() const;

  // The part of `data` that is recognised, 0 to 1.
  double accuracy(const Dataset& data);

 private:
  void forward(const Dataset& data, std::span<const uint32_t> samples);
  std::span<float> activation(size_t layer, size_t sample);

  std::vector<size_t> widths_;
  std::vector<std::vector<float>> parameters_;
  // Of the last forward pass: activations_[0] is the input, the last one the raw scores.
  std::vector<std::vector<float>> activations_;
};

}  // namespace digits
