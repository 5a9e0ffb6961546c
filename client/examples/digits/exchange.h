#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "client/examples/digits/model.h"

namespace digits {

// All that a rank needs in order to go on with a run, in pieces of memory that may be written.
struct State {
  std::span<uint64_t> progress;        // how many steps are done
  std::vector<std::span<float>> rest;  // parameters and velocities
};

// How one rank of a training run meets the others. Gradients are written straight into memory that
// the exchange lends, and layer after layer is summed over the ranks while the next one is
// computed. Methods throw std::runtime_error with a sentence when the job has failed.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual int rank() const = 0;  // the same for the whole run
  virtual int size() const = 0;
  // The place of this rank among those that share a step, 0 to size - 1.
  virtual int position() const { return rank(); }

  // Before each step: ranks may have come in, or gone. Brings the state of those who have it to
  // those who came.
  virtual void begin_step(const State&) {}

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
