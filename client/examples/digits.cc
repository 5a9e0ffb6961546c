// gradring-digits: a data-parallel trainer on real data, through libgradring only.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "client/examples/digits/alone.h"
#include "client/examples/digits/options.h"
#include "client/examples/digits/progress.h"
#include "client/examples/digits/through_elastic.h"

namespace {

using namespace digits;

// A file that is written as the run goes, or nothing when this rank has none to write.
std::ofstream open_for_rank(const std::string& pattern, int rank) {
  std::ofstream file;
  if (const auto name = file_of_rank(pattern, rank)) {
    file.open(*name, std::ios::binary | std::ios::trunc);
    if (!file) throw std::runtime_error(fmt::format("cannot write {}", *name));
  }
  return file;
}

void close(std::ofstream& file, const std::string& pattern) {
  if (!file.is_open()) return;
  file.close();
  if (!file) throw std::runtime_error(fmt::format("writing {} failed: is the disk full?", pattern));
}

void run(const Options& options, const Split& data) {
  Model model({kPixels, 128 * options.width, 64 * options.width, kClasses}, options.recipe.seed);
  std::unique_ptr<Exchange> exchange;
  ThroughGradring* job = nullptr;
  bool elastic = false;
  if (options.single) {
    exchange = std::make_unique<Alone>(model);
  } else {
    gradring_options job_options;
    gradring_options_init(&job_options);
    if (!options.policy.empty()) job_options.policy = options.policy.c_str();
    elastic = std::string_view(job_options.policy).starts_with("elastic");
    if (job_options.rank == 0) {
      fmt::print("joining job {} as one of {} ranks\n",
                 job_options.job ? job_options.job : "(none)", job_options.size);
      std::fflush(stdout);
    }
    std::unique_ptr<ThroughGradring> joined;
    if (elastic) {
      joined = std::make_unique<ThroughElastic>(model, job_options);
    } else {
      joined = std::make_unique<ThroughGradring>(model, job_options);
    }
    job = joined.get();
    exchange = std::move(joined);
  }

  const int rank = exchange->rank();
  std::ofstream losses = open_for_rank(options.loss_out, rank);
  std::ofstream weights = open_for_rank(options.weights_out, rank);
  if (losses.is_open()) losses << "step,loss\n";
  if (rank == 0) {
    fmt::print("training on {} images, testing on {}: {} ranks, {} images a step, {} epochs\n",
               data.train.size(), data.test.size(), exchange->size(), options.recipe.batch,
               options.recipe.epochs);
    std::fflush(stdout);
  }
  Progress progress(stdout, isatty(STDOUT_FILENO) == 1);
  const auto begin = std::chrono::steady_clock::now();
  train(model, data.train, options.recipe, *exchange, [&](const Step& step) {
    if (losses.is_open()) losses << fmt::format("{},{:.17g}\n", step.number, step.loss);
    if (exchange->position() == 0) progress.show(step, options.recipe);
  });
  progress.end();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;

  for (size_t layer = 0; weights.is_open() && layer < model.layers(); ++layer) {
    const auto bytes = std::as_bytes(std::as_const(model).parameters(layer));
    weights.write(reinterpret_cast<const char*>(bytes.data()),
                  static_cast<std::streamsize>(bytes.size()));
  }
  close(losses, options.loss_out);
  close(weights, options.weights_out);
  if (elastic) {
    fmt::print("rank {}: {} ranks at the end, weights {:016x}, test accuracy {:.2f} %\n", rank,
               exchange->size(), model.hash(), 100 * model.accuracy(data.test));
  } else if (rank == 0) {
    fmt::print("trained in {:.1f} s; test accuracy {:.2f} %\n", seconds.count(),
               100 * model.accuracy(data.test));
  }
  if (job != nullptr) job->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = parse_options(argc, argv);
  if (!options) {
    fmt::print(stderr, "gradring-digits: {}\n", options.error());
    return 2;
  }
  if (!*options) return 0;
  const auto data = load((*options)->data);
  if (!data) {
    fmt::print(stderr, "gradring-digits: {}\n", data.error());
    return 2;
  }
  try {
    run(**options, split(*data));
  } catch (const std::exception& error) {
    const char* rank = std::getenv("RANK");
    fmt::print(stderr, "gradring-digits{}: {}\n",
               rank != nullptr ? fmt::format(", rank {}", rank) : "", error.what());
    return 1;
  }
  return 0;
}
