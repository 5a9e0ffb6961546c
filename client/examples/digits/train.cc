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

 private:
  float rate_, keep_;
  std::vector<std::vector<float>> velocity_;
};

}  // namespace

Shard shard_of(size_t count, int rank, int size) {
  const auto r = static_cast<size_t>(rank), n = static_cast<size_t>(size);
  return {count * r / n, count * (r + 1) / n};
}

void train(Model& model, const Dataset& data, const Recipe& recipe, Exchange& exchange,
           const std::function<void(const Step&)>& on_step) {
  exchange.broadcast(model);
  Momentum momentum(model, recipe);
  Random random(recipe.seed);  // the same on every rank: all agree on what a batch is
  std::vector<uint32_t> order(data.size());
  std::iota(order.begin(), order.end(), 0u);

  Step step;
  step.total = recipe.epochs * ((data.size() + recipe.batch - 1) / recipe.batch);
  for (step.epoch = 0; step.epoch < recipe.epochs; ++step.epoch) {
    random.shuffle(std::span(order));
    for (size_t begin = 0; begin < order.size(); begin += recipe.batch, ++step.number) {
      const auto batch =
          std::span(order).subspan(begin, std::min(recipe.batch, order.size() - begin));
      const Shard mine = shard_of(batch.size(), exchange.rank(), exchange.size());
      const double loss =
          model.backward(data, batch.subspan(mine.begin, mine.end - mine.begin),
                         1.0f / static_cast<float>(batch.size()), exchange.gradients(),
                         [&exchange](size_t layer) { exchange.start(layer); });
      step.loss = exchange.finish(loss);
      momentum.update(model, exchange.gradients());
      on_step(step);
      if (recipe.step_delay.count() > 0) std::this_thread::sleep_for(recipe.step_delay);
    }
  }
}

}  // namespace digits
