#include "tests/chaos/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradring/gradring.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "tests/chaos/arithmetic.h"
#include "tests/chaos/log.h"

namespace gradring::chaos {
namespace {

// Ops under way at once between two join points, as of a trainer with buckets.
constexpr size_t kWindow = 3;

// A daemon that was killed is back within a second or two.
constexpr auto kDaemonRetry = std::chrono::milliseconds(20);

enum class Kind { kAllreduce, kBroadcast, kBarrier };

Kind kind_of(uint64_t op) {
  if (op % 8 == 5) return Kind::kBroadcast;
  return op % 16 == 6 ? Kind::kBarrier : Kind::kAllreduce;
}

// One of the largest, which travels in 16 bits.
bool is_packed(uint64_t op) { return op % 8 == 4; }
// By powers of two, so that nothing comes out otherwise.
bool is_scaled(uint64_t op) { return op % 8 == 1 || op % 16 == 12; }

// One op that was handed over.
struct Open {
  uint64_t number = 0;
  uint64_t count = 0;
  float* buffer = nullptr;
  gradring_request request = 0;
  gradring_code refused = GRADRING_OK;
};

// What travels to a rank that comes in.
struct State {
  uint64_t next = 0;   // the number of the next op
  uint64_t chain = 0;  // a hash of all results so far
  uint64_t life = 0;   // random: tells apart jobs that lost all their ranks and began anew
};
static_assert(sizeof(State) == 3 * sizeof(uint64_t));

class Trainer {
 public:
  Trainer(const Settings& settings, uint32_t rank, const std::string& serial)
      : settings_(settings), rank_(rank), log_(settings.folder + "/" + serial) {}
  ~Trainer() { gradring_close(comm_); }

  void run() {
    log_.line('S', fmt::format("{} {}", rank_, getpid()));
    if (!open() || !allocate()) return;
    bool goes_on = meet();
    while (goes_on) {
      goes_on = train_until_join_point() && meet();
    }
  }

 private:
  bool open() {
    gradring_options options;
    gradring_options_init(&options);
    options.rank = static_cast<int32_t>(rank_);
    options.size = static_cast<int32_t>(settings_.size);
    options.policy = settings_.policy.c_str();
    options.join_timeout_ms = settings_.open_ms;
    const double deadline = now() + static_cast<double>(settings_.open_ms) / 1000;
    gradring_code code = gradring_open(&options, &comm_);
    while (code == GRADRING_ERR_UNAVAILABLE && now() < deadline) {
      std::this_thread::sleep_for(kDaemonRetry);
      code = gradring_open(&options, &comm_);
    }
    if (code != GRADRING_OK) {
      log_.line('r', fmt::format("{} {}", static_cast<int>(code), gradring_last_error()));
      return false;
    }
    log_.line('J', fmt::format("{}", gradring_epoch(comm_)));
    return true;
  }

  bool allocate() {
    void* memory = nullptr;
    for (float*& buffer : buffers_) {
      if (gradring_alloc(comm_, settings_.elements_max * sizeof(float), &memory) != GRADRING_OK) {
        return give_up("alloc", GRADRING_ERR_EXHAUSTED, {});
      }
      buffer = static_cast<float*>(memory);
    }
    if (gradring_alloc(comm_, sizeof(State), &memory) != GRADRING_OK)
      return give_up("alloc", GRADRING_ERR_EXHAUSTED, {});
    state_ = static_cast<State*>(memory);
    return true;
  }

  // A join point, and the state from the oldest if ranks came in.
  bool meet() {
    while (true) {
      gradring_result result{};
      result.struct_size = sizeof result;
      view_.struct_size = sizeof view_;
      log_.line('q', fmt::format("{:x} {}", state_->life, state_->next));
      const gradring_code code = gradring_join_point(comm_, &result, &view_);
      if (code != GRADRING_OK) return give_up("join-point", code, result);
      learn_views(view_.epoch);
      log_.line('p',
                fmt::format("{:x} {} {} {} {} {} {:x}", state_->life, state_->next, result.verdict,
                            view_.epoch, view_.grew, view_.oldest, mask_of(view_.epoch)));
      if (view_.grew == grew_) return true;
      if (share_state()) return true;
      if (cause_ != GRADRING_CAUSE_ROOT_LOST && cause_ != GRADRING_CAUSE_REFUSED) return false;
    }
  }

  bool share_state() {
    const State before = *state_;
    if (view_.oldest == rank_ && state_->life == 0) {
      state_->life = static_cast<uint64_t>(now() * 1e9) << 8 | rank_;
    }
    gradring_op op{};
    op.struct_size = sizeof op;
    op.collective = GRADRING_BROADCAST;
    op.dtype = GRADRING_INT64;
    op.root = view_.oldest;
    op.count = sizeof(State) / sizeof(uint64_t);
    op.input = op.output = state_;
    gradring_request request = 0;
    gradring_result result{};
    result.struct_size = sizeof result;
    gradring_code code = gradring_submit(comm_, &op, &request);
    if (code == GRADRING_OK) {
      code = gradring_wait(comm_, request, settings_.patience_ms, &result);
    }
    cause_ = result.cause;
    if (code == GRADRING_OK) {
      grew_ = view_.grew;
    } else {
      *state_ = before;
    }
    learn_views(result.epoch);
    log_.line('b', fmt::format("{:x} {} {} {} {} {:x}", state_->life, state_->next, result.verdict,
                               result.cause, result.epoch, state_->chain));
    if (code == GRADRING_OK || cause_ == GRADRING_CAUSE_ROOT_LOST ||
        cause_ == GRADRING_CAUSE_REFUSED) {
      return code == GRADRING_OK;
    }
    return give_up("state", code, result);
  }

  // Some ops, several under way at once, each looked at in order.
  bool train_until_join_point() {
    const uint64_t end = state_->next + settings_.join_every;
    std::vector<Open> open;
    for (uint64_t next = state_->next; state_->next < end;) {
      while (next < end && open.size() < kWindow) open.push_back(submit(next++));
      const bool good = finish(open.front());
      open.erase(open.begin());
      if (!good) return false;
      ++state_->next;
    }
    return true;
  }

  // The rank that gives out the values of a broadcast.
  uint32_t root_of(uint64_t number) const {
    return joined_ranks_.empty() ? 0 : joined_ranks_[number % joined_ranks_.size()];
  }

  Open submit(uint64_t number) {
    static constexpr std::array<uint64_t, 4> kShares = {1, 8, 64, 512};  // of the largest
    Open one;
    one.number = number;
    one.count = std::max<uint64_t>(2, settings_.elements_max / kShares[number % 4] / 2 * 2);
    one.buffer = buffers_[number % kWindow];
    fill(rank_, number, one.count, one.buffer);
    gradring_op op{};
    op.struct_size = sizeof op;
    op.dtype = GRADRING_FLOAT32;
    op.op = GRADRING_SUM;
    op.root = root_of(number);
    op.count = one.count;
    op.input = op.output = one.buffer;
    op.collective = kind_of(number) == Kind::kBroadcast ? GRADRING_BROADCAST
                    : kind_of(number) == Kind::kBarrier ? GRADRING_BARRIER
                                                        : GRADRING_ALLREDUCE;
    if (is_packed(number)) op.wire = GRADRING_WIRE_FLOAT16;
    if (is_scaled(number)) {
      op.prescale = 0.5;
      op.postscale = 2;
    }
    log_.line('s', fmt::format("{:x} {}", state_->life, number));
    one.refused = gradring_submit(comm_, &op, &one.request);
    return one;
  }

  bool finish(const Open& one) {
    gradring_result result{};
    result.struct_size = sizeof result;
    gradring_code code = one.refused;
    if (code == GRADRING_OK) {
      code = gradring_wait(comm_, one.request, settings_.patience_ms, &result);
    }
    const bool root_lost =
        kind_of(one.number) == Kind::kBroadcast &&
        (result.cause == GRADRING_CAUSE_ROOT_LOST || result.cause == GRADRING_CAUSE_REFUSED);
    if (code != GRADRING_OK && !root_lost)
      return give_up(fmt::format("{}", one.number), code, result);
    std::string sets = "-";
    uint64_t hash = 0;
    if (code == GRADRING_OK && kind_of(one.number) != Kind::kBarrier) {
      hash = hash_of(one.buffer, one.count * sizeof(float), kHashOfNothing);
      state_->chain = hash_of(&hash, sizeof hash, state_->chain ^ kHashOfNothing);
      const double rounding = is_packed(one.number) ? kRoundingOfFloat16 : kRounding;
      sets = fmt::format("{:x}",
                         fmt::join(contributors(one.number, one.count, one.buffer, rounding), ","));
      if (sets.empty()) sets = "wrong";
    }
    learn_views(result.epoch);
    log_.line('o', fmt::format("{:x} {} {} {} {} {} {} {} {} {:x} {:x} {}", state_->life,
                               one.number, static_cast<int>(kind_of(one.number)), result.verdict,
                               result.cause, result.ranks_min, result.ranks_max, result.epoch,
                               view_.epoch, hash, state_->chain, sets));
    return true;
  }

  uint64_t mask_of(uint64_t epoch) {
    std::array<uint32_t, kRankMax + 1> ranks{};
    uint32_t count = 0;
    if (gradring_view_ranks(comm_, epoch, ranks.data(), ranks.size(), &count) != GRADRING_OK) {
      return 0;
    }
    uint64_t mask = 0;
    for (uint32_t i = 0; i < count; ++i) mask |= uint64_t{1} << ranks[i];
    if (epoch == view_.epoch) joined_ranks_.assign(ranks.begin(), ranks.begin() + count);
    return mask;
  }

  // Writes down each view that this rank was told since.
  void learn_views(uint64_t epoch) {
    if (epoch <= known_epoch_) return;
    gradring_view view{};
    view.struct_size = sizeof view;
    gradring_get_view(comm_, &view);
    for (uint64_t each = std::max(known_epoch_ + 1, epoch - std::min<uint64_t>(epoch, 7));
         each <= epoch; ++each) {
      const uint64_t mask = mask_of(each);
      if (mask == 0) continue;  // before this rank came in
      log_.line('v', fmt::format("{:x} {} {:x} {}", state_->life, each, mask,
                                 each == view.epoch ? view.explanation : "-"));
    }
    known_epoch_ = epoch;
  }

  // The end of this trainer, with the reason; always false.
  bool give_up(const std::string& where, gradring_code code, const gradring_result& result) {
    log_.line('x', fmt::format("{:x} {} {} {} {} {} {} {}", state_ == nullptr ? 0 : state_->life,
                               state_ == nullptr ? 0 : state_->next, where, static_cast<int>(code),
                               result.verdict, result.cause, result.epoch, gradring_last_error()));
    return false;
  }

  const Settings& settings_;
  const uint32_t rank_;
  Log log_;
  gradring_comm* comm_ = nullptr;
  std::array<float*, kWindow> buffers_{};
  State* state_ = nullptr;
  gradring_view view_{};
  std::vector<uint32_t> joined_ranks_;
  uint64_t grew_ = 0;
  uint64_t known_epoch_ = 0;
  uint32_t cause_ = 0;
};

}  // namespace

void train(const Settings& settings, uint32_t rank, const std::string& serial) {
  Trainer(settings, rank, serial).run();
}

}  // namespace gradring::chaos
