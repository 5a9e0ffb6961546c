#pragma once

#include <cstddef>
#include <span>

#include "client/examples/digits/model.h"

namespace digits {

// How one rank of a training run meets the others. Gradients are written straight into memory that
// the exchange lends, and layer after layer is summed over the ranks while the next one is
// computed. Methods throw std::runtime_error with a sentence when the job has failed.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Gives every rank the parameters of rank 0.
  virtual void broadcast(Model& model) = 0;

  // Where to write the gradients, one a layer. The memory of a layer is not to be touched between
  // start() and finish().
  virtual Model::Gradients gradients() = 0;
  // Begins to sum this layer's gradient over the ranks.
  virtual void start(size_t layer) = 0;
  // Waits for every layer that was started, and for the sum of `loss` over the ranks, which it
  // returns.
  virtual double finish(double loss) = 0;
};

}  // namespace digits
