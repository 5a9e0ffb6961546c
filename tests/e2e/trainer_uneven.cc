// The trainer whose ranks have unequal amounts of data: each does its own number of steps, joins,
// and goes on with all others from what the last of them has.
#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/e2e/trainer.h"

namespace gradring::e2e {
namespace {

class Trainer {
 public:
  Trainer(const Options& options, gradring_comm* comm)
      : options_(options),
        comm_(comm),
        rank_(static_cast<uint32_t>(gradring_rank(comm))),
        size_(static_cast<uint32_t>(gradring_size(comm))) {}

  int run() {
    buffer_ = allocate(comm_, options_.count);
    if (buffer_ == nullptr) return 1;
    for (uint64_t round = 0; round < kRounds; ++round) {
      if (!epoch(round) || !join(round)) return 1;
    }
    return 0;
  }

 private:
  static constexpr uint64_t kRounds = 3;

  // The one that has most is another in each round.
  uint64_t steps_of(uint32_t rank, uint64_t round) const {
    return options_.ops * (1 + (rank + round) % size_) / size_;
  }

  bool epoch(uint64_t round) {
    for (uint64_t step = 0; step < steps_of(rank_, round); ++step) {
      std::this_thread::sleep_for(std::chrono::milliseconds(options_.delay_ms));
      if (act_before(options_, step)) return false;
      const bool named = step % 2 == 1;
      float expected = 0;
      for (uint32_t rank = 0; rank < size_; ++rank) {
        if (step < steps_of(rank, round)) expected += static_cast<float>(rank + 1);
      }
      std::fill_n(buffer_, options_.count, static_cast<float>(rank_ + 1));
      gradring_op op = describe(options_, buffer_);
      op.name = named ? "weight" : nullptr;
      if (!finish(step, op, expected)) return false;
    }
    return true;
  }

  bool join(uint64_t round) {
    gradring_result result{};
    result.struct_size = sizeof result;
    uint32_t last = size_;
    const gradring_code code = gradring_join(comm_, &last, &result);
    Json line = report(round, code, result);
    line["event"] = "no more";
    line["last"] = last;
    say(line);
    if (code != GRADRING_OK) return false;
    // As the last one's weights would be handed to all.
    std::fill_n(buffer_, options_.count, rank_ == last ? 42.0F : 0.0F);
    gradring_op op = describe(options_, buffer_);
    op.collective = GRADRING_BROADCAST;
    op.root = last;
    return finish(round, op, 42);
  }

  bool finish(uint64_t number, const gradring_op& op, float expected) {
    gradring_result result{};
    result.struct_size = sizeof result;
    gradring_request request = 0;
    gradring_code code = gradring_submit(comm_, &op, &request);
    if (code == GRADRING_OK) code = gradring_wait(comm_, request, options_.patience_ms, &result);
    Json line = report(number, code, result);
    line["right"] = std::all_of(buffer_, buffer_ + options_.count,
                                [expected](float value) { return value == expected; });
    say(line);
    return code == GRADRING_OK && line["right"];
  }

  const Options& options_;
  gradring_comm* const comm_;
  const uint32_t rank_;
  const uint32_t size_;
  float* buffer_ = nullptr;
};

}  // namespace

int train_on_uneven_data(const Options& options, gradring_comm* comm) {
  return Trainer(options, comm).run();
}

}  // namespace gradring::e2e
