#include "tests/scale/model.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

namespace gradring::scale {
namespace {

using nlohmann::json;

constexpr double kForwardPart = 1.0 / 3;

Model read_model(const json& entry) {
  Model model;
  model.name = entry.at("name").get<std::string>();
  model.what = entry.at("what").get<std::string>();
  model.compute_ms = entry.at("compute_ms").get<double>();
  for (const json& layer : entry.at("layers")) {
    model.layers.push_back({layer.at("parameters").get<double>(), layer.at("work").get<double>()});
  }
  return model;
}

double work_of(const Model& model) {
  return std::accumulate(model.layers.begin(), model.layers.end(), 0.0,
                         [](double sum, const Model::Layer& layer) { return sum + layer.work; });
}

// The part of the backward pass after which so many gradients are there.
double backward_until(const Model& model, double gradients) {
  double work = 0;
  for (auto layer = model.layers.rbegin(); layer != model.layers.rend(); ++layer) {
    if (gradients <= layer->parameters) {
      work += layer->work * gradients / layer->parameters;
      break;
    }
    gradients -= layer->parameters;
    work += layer->work;
  }
  return std::min(1.0, work / work_of(model));
}

}  // namespace

double Model::parameters() const {
  return std::accumulate(layers.begin(), layers.end(), 0.0,
                         [](double sum, const Layer& layer) { return sum + layer.parameters; });
}

std::vector<Model> read_models(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + " cannot be read");
  std::vector<Model> models;
  try {
    const json all = json::parse(file);
    for (const json& entry : all.at("models")) models.push_back(read_model(entry));
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
  return models;
}

Step step_of(const Model& model, uint64_t bucket_max) {
  const auto bytes = static_cast<uint64_t>(model.parameters() * sizeof(float));
  const uint64_t buckets = std::max<uint64_t>(1, (bytes + bucket_max - 1) / bucket_max);
  Step step;
  step.compute = static_cast<core::Time>(model.compute_ms * core::kMillisecond);
  step.bucket_bytes = bytes / buckets / sizeof(float) * sizeof(float);
  for (uint64_t i = 1; i <= buckets; ++i) {
    const double there = model.parameters() * static_cast<double>(i) / static_cast<double>(buckets);
    const double part = kForwardPart + (1 - kForwardPart) * backward_until(model, there);
    step.ready.push_back(static_cast<core::Time>(part * static_cast<double>(step.compute)));
  }
  return step;
}

}  // namespace gradring::scale
