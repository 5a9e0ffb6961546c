#pragma once

#include <cstdint>

#include "client/examples/digits/through_gradring.h"

namespace digits {

// The same for a job of policy "elastic": it goes on with the ranks that are left, and takes in new
// ones at the head of each step.
class ThroughElastic : public ThroughGradring {
 public:
  ThroughElastic(const Model& model, const gradring_options& options);

  int size() const override { return view_.size; }
  int position() const override { return view_.position; }
  // The first step brings everybody's state, and whoever comes later begins there as well.
  void broadcast(Model&) override {}
  void begin_step(const State& state) override;

 private:
  bool share(const State& state);

  gradring::View view_;              // of the last join point: the same on all ranks
  uint64_t grew_ = 0;                // when ranks came in that had the state brought to them
  gradring::Buffer<uint8_t> state_;  // all of it in one piece, so that it arrives whole or not
};

}  // namespace digits
