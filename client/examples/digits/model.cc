#include "client/examples/digits/model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "client/examples/digits/random.h"

namespace digits {
namespace {

// Turns raw scores into softmax(scores) - onehot(label), the gradient of the cross entropy, and
// returns the cross entropy.
double softmax_minus_label(std::span<float> scores, uint8_t label) {
  const float highest = *std::max_element(scores.begin(), scores.end());
  float total = 0;
  for (float& score : scores) total += score = std::exp(score - highest);
  for (float& score : scores) score /= total;
  const double loss = -std::log(std::max(scores[label], 1e-30f));  // never the log of zero
  scores[label] -= 1;
  return loss;
}

}  // namespace

Model::Model(std::vector<size_t> widths, uint64_t seed)
    : widths_(std::move(widths)), activations_(widths_.size()) {
  Random random(seed);
  for (size_t layer = 0; layer < layers(); ++layer) {
    const size_t inputs = widths_[layer], outputs = widths_[layer + 1];
    auto& values = parameters_.emplace_back(inputs * outputs + outputs, 0.0f);
    // He's rule for ReLU keeps the variance of a signal from layer to layer; biases stay 0.
    const float reach = std::sqrt(6.0f / static_cast<float>(inputs));
    std::generate_n(values.begin(), inputs * outputs,
                    [&] { return reach * (2 * random.uniform() - 1); });
  }
}

std::span<float> Model::activation(size_t layer, size_t sample) {
  return {&activations_[layer][sample * widths_[layer]], widths_[layer]};
}

void Model::forward(const Dataset& data, std::span<const uint32_t> samples) {
  for (size_t layer = 0; layer <= layers(); ++layer) {
    activations_[layer].resize(samples.size() * widths_[layer]);
  }
  for (size_t s = 0; s < samples.size(); ++s) {
    std::ranges::copy(data.image(samples[s]), activation(0, s).begin());
    for (size_t layer = 0; layer < layers(); ++layer) {
      const auto in = activation(layer, s), out = activation(layer + 1, s);
      const float* weights = parameters_[layer].data();
      const float* biases = weights + in.size() * out.size();
      std::copy_n(biases, out.size(), out.begin());
      for (size_t i = 0; i < in.size(); ++i, weights += out.size()) {
        for (size_t o = 0; o < out.size(); ++o) out[o] += in[i] * weights[o];
      }
      if (layer + 1 < layers()) {
        for (float& value : out) value = std::max(value, 0.0f);
      }
    }
  }
}

double Model::backward(const Dataset& data, std::span<const uint32_t> samples, float share,
                       Gradients gradients, const std::function<void(size_t)>& ready) {
  forward(data, samples);
  double loss = 0;
  for (size_t s = 0; s < samples.size(); ++s) {
    const auto scores = activation(layers(), s);
    loss += softmax_minus_label(scores, data.label(samples[s]));
    for (float& value : scores) value *= share;
  }
  // From here on the activations behind `layer` hold derivatives: each layer turns its own input
  // into the derivative for the layer before it, after its last use.
  for (size_t layer = layers(); layer-- > 0;) {
    const size_t inputs = widths_[layer], outputs = widths_[layer + 1];
    const auto gradient = gradients[layer];
    std::ranges::fill(gradient, 0.0f);
    for (size_t s = 0; s < samples.size(); ++s) {
      const auto in = activation(layer, s), slope = activation(layer + 1, s);
      float* into = gradient.data();
      for (size_t i = 0; i < inputs; ++i, into += outputs) {
        for (size_t o = 0; o < outputs; ++o) into[o] += in[i] * slope[o];
      }
      for (size_t o = 0; o < outputs; ++o) into[o] += slope[o];
    }
    ready(layer);
    if (layer == 0) break;
    for (size_t s = 0; s < samples.size(); ++s) {
      const auto in = activation(layer, s), slope = activation(layer + 1, s);
      const float* weights = parameters_[layer].data();
      for (size_t i = 0; i < inputs; ++i, weights += outputs) {
        const bool passed = in[i] > 0;  // ReLU's derivative
        in[i] = passed ? std::inner_product(slope.begin(), slope.end(), weights, 0.0f) : 0.0f;
      }
    }
  }
  return loss * share;
}

double Model::accuracy(const Dataset& data) {
  size_t right = 0;
  for (uint32_t sample = 0; sample < data.size(); ++sample) {
    forward(data, {&sample, 1});
    const auto scores = activation(layers(), 0);
    right += std::ranges::max_element(scores) - scores.begin() == data.label(sample);
  }
  return static_cast<double>(right) / static_cast<double>(data.size());
}

uint64_t Model::hash() const {
  // FNV-1a.
  uint64_t hash = 0xcbf29ce484222325u;
  for (const auto& layer : parameters_) {
    for (const std::byte byte : std::as_bytes(std::span(layer))) {
      hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3u;
    }
  }
  return hash;
}

}  // namespace digits
