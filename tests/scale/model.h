#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/scale/step.h"

namespace gradring::scale {

// A network that is trained, as far as it matters here (models.json).
struct Model {
  struct Layer {
    double parameters = 0;
    double work = 0;  // operations, in any unit
  };
  std::string name;
  std::string what;
  double compute_ms = 0;      // of a step on one GPU that has nobody to wait for
  std::vector<Layer> layers;  // in the order of the forward pass

  double parameters() const;
};

// Throws std::runtime_error with a sentence that names the file.
std::vector<Model> read_models(const std::string& path);

// The forward pass takes the first third of a step and the backward pass the rest, through the
// layers from the last to the first, each as long as it has work. Gradients are float32, fill
// buckets of equal size of at most `bucket_max` in that order, and a bucket is handed over when the
// last of its gradients is there.
Step step_of(const Model& model, uint64_t bucket_max);

}  // namespace gradring::scale
