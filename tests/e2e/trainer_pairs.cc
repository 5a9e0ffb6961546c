// The trainer that sends to its neighbours: each step is one send to the next rank and one receive
// from the last, and the same the other way round, all under way at the same time.
#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/e2e/trainer.h"

namespace gradring::e2e {
namespace {

// Exact in float32, and another for each rank, op and way.
float value_of(uint32_t rank, uint64_t number, bool back) {
  return static_cast<float>(rank * 1000 + number % 500 * 2 + (back ? 1 : 0));
}

class Trainer {
 public:
  Trainer(const Options& options, gradring_comm* comm)
      : options_(options),
        comm_(comm),
        rank_(static_cast<uint32_t>(gradring_rank(comm))),
        size_(static_cast<uint32_t>(gradring_size(comm))) {}

  int run() {
    buffer_ = allocate(comm_, 4 * options_.count);
    if (buffer_ == nullptr) return 1;
    int status = 0;
    for (uint64_t number = 0; number < options_.ops; ++number) {
      std::this_thread::sleep_for(std::chrono::milliseconds(options_.delay_ms));
      if (act_before(options_, number)) break;
      if (!step(number)) status = 1;
      if (status != 0 && !options_.keep_going) break;
    }
    return status;
  }

 private:
  struct Transfer {
    bool sends = false;
    bool back = false;  // against the order of ranks
    uint32_t peer = 0;
    float* buffer = nullptr;
    gradring_request request = 0;
    gradring_code code = GRADRING_OK;
  };

  bool step(uint64_t number) {
    const uint32_t next = (rank_ + 1) % size_, last = (rank_ + size_ - 1) % size_;
    const auto part = [this](uint64_t i) { return buffer_ + i * options_.count; };
    std::array<Transfer, 4> transfers = {{{true, false, next, part(0)},
                                          {true, true, last, part(1)},
                                          {false, false, last, part(2)},
                                          {false, true, next, part(3)}}};
    // Not in the same order on all ranks.
    std::rotate(transfers.begin(), transfers.begin() + (rank_ + number) % 4, transfers.end());
    for (Transfer& transfer : transfers) {
      const float value = transfer.sends ? value_of(rank_, number, transfer.back) : -1;
      std::fill_n(transfer.buffer, options_.count, value);
      submit(transfer);
    }
    bool good = true;
    for (Transfer& transfer : transfers) good = finish(number, transfer) && good;
    return good;
  }

  // Where two ranks are each other's neighbours on both sides only the name tells the ways apart.
  void submit(Transfer& transfer) {
    gradring_op op{};
    op.struct_size = sizeof op;
    op.collective = transfer.sends ? GRADRING_SEND : GRADRING_RECV;
    op.dtype = GRADRING_FLOAT32;
    op.count = options_.count;
    op.root = transfer.peer;
    op.name = transfer.back ? "back" : nullptr;
    if (transfer.sends) {
      op.input = transfer.buffer;
    } else {
      op.output = transfer.buffer;
    }
    transfer.code = gradring_submit(comm_, &op, &transfer.request);
  }

  bool finish(uint64_t number, const Transfer& transfer) {
    gradring_result result{};
    result.struct_size = sizeof result;
    gradring_code code = transfer.code;
    if (code == GRADRING_OK) {
      code = gradring_wait(comm_, transfer.request, options_.patience_ms, &result);
    }
    Json line = report(number, code, result);
    line["way"] = transfer.sends ? "send" : "receive";
    line["peer"] = transfer.peer;
    const float expected = value_of(transfer.sends ? rank_ : transfer.peer, number, transfer.back);
    line["right"] = std::all_of(transfer.buffer, transfer.buffer + options_.count,
                                [&](float value) { return value == expected; });
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

int train_in_pairs(const Options& options, gradring_comm* comm) {
  return Trainer(options, comm).run();
}

}  // namespace gradring::e2e
