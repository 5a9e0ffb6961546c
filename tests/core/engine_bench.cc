// What thinking costs: `engine_bench`, not part of ctest. Engines of one job exchange frames at
// once and move no data. Time per op, all nodes together.

#include <benchmark/benchmark.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "daemon/core/job_engine.h"
#include "tests/core/no_actions.h"

namespace gradring::core {
namespace {

class Town;

class Node : public NoActions {
 public:
  Node(Town* town, const View& view, uint32_t me, const EngineOptions& options)
      : engine(view, me, options, this), town_(town) {}

  void send(uint32_t member, const Frame& frame) override { post(member, frame, std::nullopt); }
  void send_slice(uint32_t member, const Frame& frame, Staging from) override {
    post(member, frame, from);
  }
  void send_direct(uint32_t member, const Frame& frame, Staging from) override {
    post(member, frame, from);
  }
  void complete(uint32_t, uint64_t, const Outcome& outcome) override {
    ++(outcome.verdict == Verdict::kOk ? completed : failed);
  }
  void fail_job(const Failure&) override { ++failed; }
  void absent(const Absence&) override { ++failed; }
  void condemned(const Failure&) override { ++failed; }

  JobEngine engine;
  uint64_t completed = 0;
  uint64_t failed = 0;

 private:
  void post(uint32_t member, const Frame& frame, std::optional<Staging> lent);

  Town* const town_;
};

class Town {
 public:
  Town(uint32_t nodes, const EngineOptions& options) {
    View view;
    view.job = "bench";
    view.epoch = 1;
    view.size = nodes;
    view.policy = "fail";
    for (uint32_t i = 0; i < nodes; ++i) {
      view.members.push_back({"n" + std::to_string(i), {{i, 0, 1, i}}});
    }
    for (uint32_t i = 0; i < nodes; ++i) {
      nodes_.push_back(std::make_unique<Node>(this, view, i, options));
    }
  }

  void run(uint64_t number, const Signature& signature) {
    for (uint32_t rank = 0; rank < nodes_.size(); ++rank) {
      Submission submission;
      submission.rank = rank;
      submission.ticket = number;
      submission.key = {0, number};
      submission.signature = signature;
      (void)nodes_[rank]->engine.submit(submission, 0);
    }
    const uint64_t target = number + 1;
    bool moved = true;
    while (moved) {
      moved = false;
      for (const auto& node : nodes_) moved = node->engine.pump(64) > 0 || moved;
      moved = deliver() || moved;
    }
    for (const auto& node : nodes_) good_ = good_ && node->completed == target && node->failed == 0;
  }
  bool good() const { return good_; }
  uint64_t slices() const {
    uint64_t sum = 0;
    for (const auto& node : nodes_) sum += node->engine.counters().slices_sent;
    return sum;
  }

  void post(uint32_t from, uint32_t to, const Frame& frame, std::optional<Staging> lent) {
    mail_.push_back({from, to, frame, lent});
  }

 private:
  struct Letter {
    uint32_t from;
    uint32_t to;
    Frame frame;
    std::optional<Staging> lent;
  };
  bool deliver() {
    const bool any = !mail_.empty();
    for (; !mail_.empty(); mail_.pop_front()) {
      const Letter& letter = mail_.front();
      JobEngine& to = nodes_[letter.to]->engine;
      if (is_direct(letter.frame)) {
        if (const auto unit = to.on_parcel(letter.from, letter.frame))
          to.on_parcel_landed(*unit, 0);
      } else if (letter.frame.type == FrameType::kSlice) {
        if (const auto slot = to.on_slice(letter.from, letter.frame)) to.on_slice_landed(*slot);
      } else {
        to.on_frame(letter.from, letter.frame, 0);
      }
      if (letter.lent) nodes_[letter.from]->engine.on_sent(*letter.lent);
    }
    return any;
  }

  std::vector<std::unique_ptr<Node>> nodes_;
  std::deque<Letter> mail_;
  bool good_ = true;
};

void Node::post(uint32_t member, const Frame& frame, std::optional<Staging> lent) {
  town_->post(engine.me(), member, frame, lent);
}

// Arguments: nodes, bytes.
void allreduce(benchmark::State& state, bool direct) {
  EngineOptions options;
  options.plan.direct_members_max = direct ? 8 : 0;
  const auto nodes = static_cast<uint32_t>(state.range(0));
  Town town(nodes, options);
  const auto count = static_cast<uint64_t>(state.range(1)) / sizeof(float);
  const Signature sum{Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, count};
  uint64_t number = 0;
  for (auto _ : state) town.run(number++, sum);
  if (!town.good()) state.SkipWithError("an op did not end well");
  state.counters["slices/op"] = benchmark::Counter(
      static_cast<double>(town.slices()) / static_cast<double>(std::max<uint64_t>(number, 1)));
}
BENCHMARK_CAPTURE(allreduce, ring, false)->ArgsProduct({{2, 4, 8}, {4 << 10, 64 << 10, 16 << 20}});
BENCHMARK_CAPTURE(allreduce, direct, true)->ArgsProduct({{2, 4, 8}, {4 << 10, 64 << 10}});

}  // namespace
}  // namespace gradring::core

BENCHMARK_MAIN();
