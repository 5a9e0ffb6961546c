// The example trainer without a daemon: its arithmetic, and that sharing a run among ranks does not
// change it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <fstream>
#include <mutex>
#include <thread>

#include "client/examples/digits/alone.h"
#include "client/examples/digits/compare.h"
#include "client/examples/digits/options.h"
#include "client/examples/digits/progress.h"
#include "client/examples/digits/train.h"
#include "tests/sanitized.h"

namespace digits {
namespace {

using ::testing::HasSubstr;

std::vector<size_t> widths() { return {kPixels, 128, 64, kClasses}; }

const Split& digits_data() {
  static const Split kParts = split(load(GRADRING_DIGITS_DATA).value());
  return kParts;
}

std::string write_file(const std::string& name, const std::string& content) {
  std::string path = ::testing::TempDir() + name;
  std::ofstream(path) << content;
  return path;
}

std::vector<float> weights_of(const Model& model) {
  std::vector<float> all;
  for (size_t layer = 0; layer < model.layers(); ++layer) {
    const auto values = model.parameters(layer);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// The ranks are threads; sums are folded in rank order, as a daemon does.
class Together {
 public:
  explicit Together(int size) : meet_(size), members_(static_cast<size_t>(size)) {}

  class Rank : public Alone {
   public:
    Rank(Together& all, int rank, const Model& model)
        : Alone(model), all_(all), rank_(rank), started_(model.layers()) {
      all_.members_[static_cast<size_t>(rank)] = this;
    }
    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(all_.members_.size()); }

    void broadcast(Model& model) override {
      if (rank_ == 0) all_.model_ = &model;
      all_.meet_.arrive_and_wait();
      for (size_t layer = 0; rank_ != 0 && layer < model.layers(); ++layer) {
        std::ranges::copy(all_.model_->parameters(layer), model.parameters(layer).begin());
      }
      all_.meet_.arrive_and_wait();
    }
    void start(size_t layer) override { started_[layer] = true; }
    double finish(double loss) override {
      EXPECT_THAT(started_, ::testing::Each(true)) << "a layer was never started";
      loss_ = loss;
      all_.meet_.arrive_and_wait();
      if (rank_ == 0) all_.fold();
      all_.meet_.arrive_and_wait();
      started_.assign(started_.size(), false);
      return loss_;
    }

   private:
    friend class Together;
    Together& all_;
    int rank_;
    std::vector<bool> started_;
    double loss_ = 0;
  };

 private:
  void fold() {
    const auto first = members_[0]->gradients();
    for (size_t layer = 0; layer < first.size(); ++layer) {
      for (size_t i = 0; i < first[layer].size(); ++i) {
        float sum = 0;
        for (Rank* member : members_) sum += member->gradients()[layer][i];
        for (Rank* member : members_) member->gradients()[layer][i] = sum;
      }
    }
    double loss = 0;
    for (Rank* member : members_) loss += member->loss_;
    for (Rank* member : members_) member->loss_ = loss;
  }

  std::barrier<> meet_;
  std::vector<Rank*> members_;
  Model* model_ = nullptr;
};

TEST(Dataset, IsCompleteAndSplitAsStated) {
  const auto all = load(GRADRING_DIGITS_DATA);
  ASSERT_TRUE(all) << all.error();
  EXPECT_EQ(all->size(), 1797u);
  EXPECT_EQ(digits_data().train.size(), 1437u);
  EXPECT_EQ(digits_data().test.size(), 360u);
  // The first image of the file is a zero and is kept for the test.
  EXPECT_EQ(digits_data().test.label(0), 0);
  EXPECT_FLOAT_EQ(digits_data().test.image(0)[2], 5.0f / 16);
}

TEST(Dataset, NamesTheBadLine) {
  EXPECT_THAT(load("/nowhere/digits.csv").error(), HasSubstr("/nowhere/digits.csv"));
  std::string good;
  for (int i = 0; i < 64; ++i) good += "16,";
  const std::string line = good + "9\n";
  EXPECT_TRUE(load(write_file("good.csv", line + line + line + line + line)));
  for (const std::string& bad :
       {good + "10\n", good + "-1\n", good + "9,1\n", good + "\n", "17," + line.substr(3),
        std::string("hello\n"), std::string("\n"), good.substr(3) + "9\n"}) {
    const auto data = load(write_file("bad.csv", line + bad));
    ASSERT_FALSE(data) << bad;
    EXPECT_THAT(data.error(), HasSubstr("bad.csv:2: ")) << bad;
  }
  EXPECT_THAT(load(write_file("short.csv", line)).error(), HasSubstr("too few"));
}

TEST(Model, GradientIsTheSlopeOfTheLoss) {
  Model model({kPixels, 12, kClasses}, 7);
  Alone exchange(model);
  const std::vector<uint32_t> samples = {0, 5, 9, 44};
  const auto loss = [&] {
    return model.backward(digits_data().train, samples, 0.25f, exchange.gradients(), [](size_t) {});
  };
  loss();
  for (size_t layer = 0; layer < model.layers(); ++layer) {
    const std::vector<float> gradient(exchange.gradients()[layer].begin(),
                                      exchange.gradients()[layer].end());
    for (size_t i = 3; i < gradient.size(); i += 17) {
      constexpr float kNudge = 1e-2f;
      float& weight = model.parameters(layer)[i];
      const float before = weight;
      weight = before + kNudge;
      const double above = loss();
      weight = before - kNudge;
      const double below = loss();
      weight = before;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * kNudge), 2e-3)
          << "layer " << layer << ", parameter " << i;
    }
  }
}

TEST(Model, LayersAreReadyFromTheLastToTheFirst) {
  Model model(widths(), 1);
  Alone exchange(model);
  std::vector<size_t> order;
  const std::vector<uint32_t> samples = {1, 2, 3};
  model.backward(digits_data().train, samples, 1, exchange.gradients(),
                 [&](size_t layer) { order.push_back(layer); });
  EXPECT_EQ(order, (std::vector<size_t>{2, 1, 0}));
}

TEST(Train, ShardsCoverTheBatchWithoutOverlap) {
  for (size_t count : {0u, 1u, 3u, 29u, 64u}) {
    size_t at = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const Shard shard = shard_of(count, rank, 4);
      EXPECT_EQ(shard.begin, at);
      EXPECT_LE(shard.end - shard.begin, count / 4 + 1);
      at = shard.end;
    }
    EXPECT_EQ(at, count);
  }
}

TEST(Train, LearnsToReadDigits) {
  Model model(widths(), 1);
  Alone exchange(model);
  EXPECT_LT(model.accuracy(digits_data().test), 0.3);
  train(model, digits_data().train, Recipe{}, exchange, [](const Step&) {});
  EXPECT_GE(model.accuracy(digits_data().test), 0.95);
}

TEST(Train, FourRanksWalkTheSameCurveAsOne) {
  Recipe recipe;
  if (gradring::kSanitized) recipe.epochs = 4;
  std::vector<double> alone;
  Model single(widths(), 1);
  Alone nobody(single);
  train(single, digits_data().train, recipe, nobody,
        [&](const Step& step) { alone.push_back(step.loss); });

  constexpr int kRanks = 4;
  Together all(kRanks);
  std::vector<double> shared;
  std::vector<Model> models;
  // Rank 0 alone begins as the single run did: the broadcast has to make up for it.
  for (int rank = 0; rank < kRanks; ++rank) models.emplace_back(widths(), rank + 1);
  std::vector<std::unique_ptr<Together::Rank>> exchanges;
  for (int rank = 0; rank < kRanks; ++rank) {
    exchanges.push_back(std::make_unique<Together::Rank>(all, rank, models[rank]));
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      train(models[rank], digits_data().train, recipe, *exchanges[rank], [&](const Step& step) {
        if (rank == 0) shared.push_back(step.loss);
      });
    });
  }
  for (auto& thread : threads) thread.join();

  const auto difference = compare_losses(alone, shared);
  ASSERT_TRUE(difference) << difference.error();
  EXPECT_LE(difference->largest, 1e-4) << "at step " << difference->step;
  RecordProperty("largest_difference", std::to_string(difference->largest));
  for (int rank = 1; rank < kRanks; ++rank) {
    EXPECT_EQ(weights_of(models[0]), weights_of(models[rank])) << "rank " << rank;
  }
}

// Stands for a job in which another rank has the state that this one is brought before its first
// step.
class CameLater : public Alone {
 public:
  CameLater(const Model& model, uint64_t progress, std::vector<std::vector<float>> rest)
      : Alone(model), progress_(progress), rest_(std::move(rest)) {}

  void begin_step(const State& state) override {
    if (rest_.empty()) return;
    state.progress[0] = progress_;
    for (size_t i = 0; i < rest_.size(); ++i) std::ranges::copy(rest_[i], state.rest[i].begin());
    rest_.clear();
  }

 private:
  uint64_t progress_;
  std::vector<std::vector<float>> rest_;
};

// Keeps the state of one step.
class Watched : public Alone {
 public:
  Watched(const Model& model, uint64_t at) : Alone(model), at_(at) {}
  void begin_step(const State& state) override {
    if (state.progress[0] != at_) return;
    for (const auto& piece : state.rest) rest.emplace_back(piece.begin(), piece.end());
  }
  std::vector<std::vector<float>> rest;

 private:
  uint64_t at_;
};

TEST(Train, WhoComesLaterGoesOnWhereTheOthersAre) {
  Recipe recipe;
  recipe.epochs = 4;
  Model first(widths(), 1);
  // 23 steps make an epoch: in the middle of the third.
  Watched others(first, 55);
  train(first, digits_data().train, recipe, others, [](const Step&) {});

  Model second(widths(), 2);
  CameLater newcomer(second, 55, others.rest);
  std::vector<size_t> steps;
  train(second, digits_data().train, recipe, newcomer,
        [&](const Step& step) { steps.push_back(step.number); });
  EXPECT_EQ(weights_of(first), weights_of(second));
  EXPECT_EQ(first.hash(), second.hash());
  EXPECT_NE(first.hash(), Model(widths(), 1).hash());
  ASSERT_EQ(steps.size(), 4u * 23 - 55);
  EXPECT_EQ(steps.front(), 55u);
}

TEST(Compare, JudgesCurves) {
  const auto curve = [](const std::string& text) {
    return read_losses(write_file("losses.csv", text));
  };
  const auto a = curve("step,loss\n0,2.5\n1,0.5\n2,0.001\n");
  ASSERT_TRUE(a) << a.error();
  EXPECT_EQ(*a, (std::vector<double>{2.5, 0.5, 0.001}));
  EXPECT_EQ(compare_losses(*a, *a)->largest, 0);
  const auto b = compare_losses(*a, {2.5, 0.4, 0.001});
  EXPECT_NEAR(b->largest, 0.2, 1e-12);
  EXPECT_EQ(b->step, 1u);
  // Below kSmallLoss the difference is measured against kSmallLoss.
  EXPECT_NEAR(compare_losses(*a, {2.5, 0.5, 0.002})->largest, 0.1, 1e-12);

  EXPECT_FALSE(compare_losses(*a, {2.5, 0.5}));
  EXPECT_FALSE(compare_losses({}, {}));
  EXPECT_FALSE(compare_losses({std::nan("")}, {1}));
  for (const std::string bad : {"", "loss\n", "step,loss\n1,2\n", "step,loss\n0,2x\n",
                                "step,loss\n0\n", "step,loss\n0,1\n2,1\n"}) {
    EXPECT_FALSE(curve(bad)) << bad;
  }
}

TEST(Compare, FindsTheFileThatDiffers) {
  const auto a = write_file("a.bin", "same"), b = write_file("b.bin", "same");
  const auto c = write_file("c.bin", "other"), empty = write_file("empty.bin", "");
  EXPECT_EQ(first_unequal({a, b}).value(), "");
  EXPECT_EQ(first_unequal({a, b, c}).value(), c);
  EXPECT_FALSE(first_unequal({a, empty}));
  EXPECT_FALSE(first_unequal({a, "/nowhere"}));
}

TEST(DigitsOptions, FileOfRank) {
  EXPECT_EQ(file_of_rank("w-%r.bin", 3), "w-3.bin");
  EXPECT_EQ(file_of_rank("w.bin", 0), "w.bin");
  EXPECT_EQ(file_of_rank("w.bin", 1), std::nullopt);
  EXPECT_EQ(file_of_rank("", 0), std::nullopt);
}

TEST(DigitsOptions, AreCheckedInWords) {
  const auto parse = [](std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "gradring-digits");
    return parse_options(static_cast<int>(arguments.size()), arguments.data());
  };
  const auto good = parse({"--single", "--epochs", "3", "--batch", "32", "--seed", "9"});
  ASSERT_TRUE(good && *good);
  EXPECT_TRUE((*good)->single);
  EXPECT_EQ((*good)->recipe.epochs, 3u);
  EXPECT_EQ((*good)->recipe.batch, 32u);
  EXPECT_EQ((*good)->recipe.seed, 9u);
  EXPECT_THAT(parse({"--epochs", "0"}).error(), HasSubstr("--epochs"));
  EXPECT_THAT(parse({"--epochs", "many"}).error(), HasSubstr("epochs"));
  EXPECT_THAT(parse({"--batch", "-4"}).error(), HasSubstr("--batch"));
  EXPECT_THAT(parse({"--unknown"}).error(), HasSubstr("unknown"));
  EXPECT_THAT(parse({"stray"}).error(), HasSubstr("positional"));
}

TEST(Progress, BarFillsUp) {
  EXPECT_EQ(progress_bar(0, 10, 10), "[>         ]");
  EXPECT_EQ(progress_bar(5, 10, 10), "[#####>    ]");
  EXPECT_EQ(progress_bar(10, 10, 10), "[##########]");
  EXPECT_EQ(progress_bar(20, 10, 4), "[####]");
  EXPECT_EQ(progress_bar(0, 0, 4), "[####]");
}

TEST(Progress, FirstAndLastStepAreAlwaysTold) {
  std::FILE* out = std::tmpfile();
  ASSERT_NE(out, nullptr);
  Progress progress(out, false);
  Recipe recipe;
  recipe.epochs = 1;
  for (size_t number = 0; number < 1000; ++number) {
    progress.show(Step{.number = number, .total = 1000, .epoch = 0, .loss = 0.5}, recipe);
  }
  progress.end();
  ASSERT_EQ(std::fseek(out, 0, SEEK_SET), 0);
  std::string text(10000, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), out));
  std::fclose(out);
  EXPECT_THAT(text, HasSubstr("step     1/1000  epoch   1/1  loss 0.5000\n"));
  EXPECT_THAT(text, HasSubstr("step  1000/1000"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("step   500/1000")));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace digits
