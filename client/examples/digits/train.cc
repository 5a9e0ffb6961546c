#include "client/examples/digits/train.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

#include "client/examples/digits/random.h"

namespace digits {
namespace {

class Momentum {
 public:
  Momentum(const Model& model, const Recipe& recipe) : rate_(recipe.rate), keep_(recipe.momentum) {
    for (size_t layer = 0; layer < model.layers(); ++layer) {
      velocity_.emplace_back(model.parameters(layer).size(), 0.0f);
    }
  }

  void update(Model& model, Model::Gradients gradients) {
    for (size_t layer = 0; layer < model.layers(); ++layer) {
      const auto parameters = model.parameters(layer);
      auto& velocity = velocity_[layer];
      for (size_t i = 0; i < parameters.size(); ++i) {
        velocity[i] = keep_ * velocity[i] + gradients[layer][i];
        parameters[i] -= rate_ * velocity[i];
      }
    }
  }
  std::span<float> velocity(size_t layer) { return velocity_[layer]; }

 private:
  float rate_, keep_;
  std::vector<std::vector<float>> velocity_;
};

// The order of the images in each pass. It depends on the seed alone, so all ranks agree on what a
// batch is, whenever they came in.
class Order {
 public:
  Order(size_t count, uint64_t seed) : seed_(seed), random_(seed), order_(count) { begin_anew(); }

  std::span<const uint32_t> of(size_t epoch) {
    if (shuffled_ > epoch + 1) begin_anew();
    for (; shuffled_ < epoch + 1; ++shuffled_) random_.shuffle(std::span(order_));
    return order_;
  }

 private:
  void begin_anew() {
    shuffled_ = 0;
    random_ = Random(seed_);
    std::iota(order_.begin(), order_.end(), 0u);
  }

  uint64_t seed_;
  Random random_;
  std::vector<uint32_t> order_;
  size_t shuffled_ = 0;  // this often since the beginning
};

}  // namespace

Shard shard_of(size_t count, int position, int size) {
  const auto p = static_cast<size_t>(position), n = static_cast<size_t>(size);
  return {count * p / n, count * (p + 1) / n};
}

void train(Model& model, const Dataset& data, const Recipe& recipe, Exchange& exchange,
           const std::function<void(const Step&)>& on_step) {
  exchange.broadcast(model);
  Momentum momentum(model, recipe);
  Order order(data.size(), recipe.seed);

  uint64_t done = 0;
  State state{std::span(&done, 1), {}};
  for (size_t layer = 0; layer < model.layers(); ++layer) {
    state.rest.push_back(model.parameters(layer));
    state.rest.push_back(momentum.velocity(layer));
  }
  const size_t steps_an_epoch = (data.size() + recipe.batch - 1) / recipe.batch;
  Step step;
  step.total = recipe.epochs * steps_an_epoch;
  while (true) {
    exchange.begin_step(state);  // which may put us further ahead
    if (done >= step.total) return;
    step.number = done;
    step.epoch = step.number / steps_an_epoch;
    const auto all = order.of(step.epoch);
    const size_t begin = step.number % steps_an_epoch * recipe.batch;
    const auto batch = all.subspan(begin, std::min(recipe.batch, all.size() - begin));
    const Shard mine = shard_of(batch.size(), exchange.position(), exchange.size());
    const double loss =
        model.backward(data, batch.subspan(mine.begin, mine.end - mine.begin),
                       1.0f / static_cast<float>(batch.size()), exchange.gradients(),
                       [&exchange](size_t layer) { exchange.start(layer); });
    step.loss = exchange.finish(loss);
    momentum.update(model, exchange.gradients());
    ++done;
    on_step(step);
    if (recipe.step_delay.count() > 0) std::this_thread::sleep_for(recipe.step_delay);
  }
}

}  // namespace digits
