// The trainer of a job that shrinks and grows: join points, the state for whoever comes in, and
// sums that tell who is in them.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <set>
#include <thread>
#include <vector>

#include "tests/e2e/trainer.h"

namespace gradring::e2e {
namespace {

// The sum of distinct powers of two says whose they are; times the factor it is exact in float32 up
// to this rank.
constexpr uint32_t kRankMax = 20;

uint32_t factor_of(uint64_t number) { return static_cast<uint32_t>(number % 7 + 1); }

float input_of(uint32_t rank, uint64_t number) {
  return static_cast<float>((1u << rank) * factor_of(number));
}

uint64_t hash_of(const void* memory, size_t bytes, uint64_t hash = 0xcbf29ce484222325u) {
  const auto* at = static_cast<const unsigned char*>(memory);
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3u;
  return hash;
}

std::string hex(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

// The sets of ranks that the elements are sums of; empty if one is no such sum.
std::set<uint32_t> sums_in(const float* buffer, uint64_t count, uint64_t number) {
  std::set<uint32_t> sums;
  for (uint64_t i = 0; i < count; ++i) {
    const float value = buffer[i] / static_cast<float>(factor_of(number));
    if (!(value >= 0 && value < static_cast<float>(2u << kRankMax)) || value != std::floor(value)) {
      return {};
    }
    sums.insert(static_cast<uint32_t>(value));
  }
  return sums;
}

Json ranks_in(uint32_t sum) {
  Json ranks = Json::array();
  for (uint32_t rank = 0; rank <= kRankMax; ++rank) {
    if ((sum >> rank & 1) != 0) ranks.push_back(rank);
  }
  return ranks;
}

// What an op's result shows beside its figures, which have to fit it.
void judge(const Options& options, uint64_t number, const float* buffer, Json* line) {
  (*line)["hash"] = hex(hash_of(buffer, options.count * sizeof(float)));
  (*line)["right"] = true;
  if (options.collective == "barrier") return;
  const auto sums = sums_in(buffer, options.count, number);
  Json contributors = Json::array();
  uint32_t least = kRankMax + 1, most = 0;
  for (const uint32_t sum : sums) {
    contributors.push_back(ranks_in(sum));
    least = std::min(least, static_cast<uint32_t>(std::popcount(sum)));
    most = std::max(most, static_cast<uint32_t>(std::popcount(sum)));
  }
  (*line)["contributors"] = contributors;
  if (options.collective == "broadcast") {
    (*line)["right"] = sums == std::set<uint32_t>{1u << options.root};
  } else {
    (*line)["right"] = least == (*line)["ranks"] && most == (*line)["ranks_max"];
  }
}

class Trainer {
 public:
  Trainer(const Options& options, gradring_comm* comm) : options_(options), comm_(comm) {}

  int run() {
    rank_ = static_cast<uint32_t>(gradring_rank(comm_));
    buffer_ = allocate(comm_, options_.count);
    // A whole state is the number of the next op and a hash of all results so far.
    state_ = reinterpret_cast<uint64_t*>(allocate(comm_, 4));
    if (rank_ > kRankMax || buffer_ == nullptr || state_ == nullptr) return 2;
    int status = 0;
    bool left = false;
    for (bool first = true; !left && state_[0] < options_.ops; first = false) {
      std::this_thread::sleep_for(std::chrono::milliseconds(options_.delay_ms));
      left = act_before(options_, state_[0]);
      if (left) break;
      if ((first || state_[0] % options_.join_every == 0) && !meet()) return 1;
      if (state_[0] >= options_.ops) break;
      if (!step()) status = 1;
      if (status != 0 && !options_.keep_going) return status;
    }
    say({{"event", "end"}, {"op", state_[0]}, {"digest", hex(state_[1])}});
    return status;
  }

 private:
  // A join point, and the state from the oldest if ranks came in.
  bool meet() {
    while (true) {
      gradring_result result{};
      result.struct_size = sizeof result;
      gradring_view view{};
      view.struct_size = sizeof view;
      const gradring_code code = gradring_join_point(comm_, &result, &view);
      Json line = report(state_[0], code, result);
      line["event"] = "join point";
      if (code != GRADRING_OK && result.verdict == 0) {  // told between two ops
        line = {{"event", "refused"}, {"code", code}, {"message", gradring_last_error()}};
      }
      if (code == GRADRING_OK) describe_view(view, &line);
      say(line);
      if (code != GRADRING_OK) return false;
      if (view.grew == grew_) return true;
      gradring_op op = describe(options_, nullptr);
      op.collective = GRADRING_BROADCAST;
      op.dtype = GRADRING_INT64;
      op.root = view.oldest;
      op.count = 2;
      op.input = op.output = state_;
      const std::vector<uint64_t> before(state_, state_ + 2);
      if (share(op)) {
        grew_ = view.grew;
        return true;
      }
      std::copy(before.begin(), before.end(), state_);
      if (cause_ != GRADRING_CAUSE_ROOT_LOST && cause_ != GRADRING_CAUSE_REFUSED) return false;
    }
  }

  bool share(const gradring_op& op) {
    gradring_request request = 0;
    gradring_result result{};
    result.struct_size = sizeof result;
    gradring_code code = gradring_submit(comm_, &op, &request);
    if (code == GRADRING_OK) code = gradring_wait(comm_, request, options_.patience_ms, &result);
    cause_ = result.cause;
    Json line = report(state_[0], code, result);
    line["event"] = "state";
    line["root"] = op.root;
    line["digest"] = hex(state_[1]);
    say(line);
    return code == GRADRING_OK;
  }

  void describe_view(const gradring_view& view, Json* line) {
    std::vector<uint32_t> ranks(view.size);
    uint32_t count = 0;
    gradring_view_ranks(comm_, view.epoch, ranks.data(), view.size, &count);
    (*line)["view"] = {{"epoch", view.epoch},
                       {"grew", view.grew},
                       {"size", view.size},
                       {"rank", view.rank},
                       {"position", view.position},
                       {"oldest", view.oldest},
                       {"ranks", ranks},
                       {"explanation", view.explanation}};
  }

  bool step() {
    const uint64_t number = state_[0]++;
    std::fill_n(buffer_, options_.count, input_of(rank_, number));
    Json line;
    const gradring_code code =
        submit_and_wait(options_, comm_, number, describe(options_, buffer_), &line);
    if (code == GRADRING_OK) {
      judge(options_, number, buffer_, &line);
      state_[1] = hash_of(buffer_, options_.count * sizeof(float), state_[1]);
    }
    say(line);
    return code == GRADRING_OK && line["right"];
  }

  const Options& options_;
  gradring_comm* comm_;
  uint32_t rank_ = 0;
  float* buffer_ = nullptr;
  uint64_t* state_ = nullptr;
  uint64_t grew_ = 0;
  uint32_t cause_ = 0;
};

}  // namespace

int train_elastic(const Options& options, gradring_comm* comm) {
  return Trainer(options, comm).run();
}

}  // namespace gradring::e2e
