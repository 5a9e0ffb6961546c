#pragma once

// Many engines in one process that move no bytes: for what large jobs say to one another. Node i is
// called "n<i>" and hosts rank i. Frames come in the order in which they were sent, unless they
// come shuffled.

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/job_engine.h"
#include "daemon/core/random.h"
#include "tests/core/no_actions.h"

namespace gradring::core {

class Crowd {
 public:
  class Node : public NoActions {
   public:
    Node(Crowd* crowd, const View& view, uint32_t me, const EngineOptions& options)
        : engine(view, me, options, this), crowd_(crowd), me_(me) {}

    void send(uint32_t member, const Frame& frame) override { post(member, frame, std::nullopt); }
    void send_slice(uint32_t member, const Frame& frame, Staging from) override {
      post(member, frame, from);
    }
    void send_direct(uint32_t member, const Frame& frame, Staging from) override {
      post(member, frame, from);
    }
    void moves(const Op& op) override { arrivals.push_back(op.arrivals); }
    void complete(uint32_t, uint64_t, const Outcome& outcome) override {
      outcomes.push_back(outcome);
    }
    void fail_job(const Failure& failure) override { failures.push_back(failure); }
    void absent(const Absence& absence) override { absences.push_back(absence); }
    void condemned(const Failure& failure) override { failures.push_back(failure); }
    void at_join_point() override { ++join_points; }
    void stand_in(uint32_t, const OpKey& key, const std::optional<Signature>&) override {
      asked.push_back(key);
    }

    uint32_t sent(FrameType type) const { return sent_[static_cast<size_t>(type)]; }

    JobEngine engine;
    bool mute = false;  // it hears and says nothing
    std::vector<Outcome> outcomes;
    std::vector<Arrivals> arrivals;  // of each op when all had submitted it
    std::vector<Failure> failures;
    std::vector<Absence> absences;
    std::vector<OpKey> asked;
    uint32_t join_points = 0;

   private:
    void post(uint32_t member, const Frame& frame, std::optional<Staging> lent) {
      ++sent_[static_cast<size_t>(frame.type)];
      const std::string& to = engine.view().members[member].node;
      crowd_->under_way_.push_back({me_, number_of(to), frame, lent});
    }

    Crowd* const crowd_;
    const uint32_t me_;
    std::array<uint32_t, kFrameTypeLast + 1> sent_{};
  };

  explicit Crowd(uint32_t nodes, const EngineOptions& options = {},
                 const std::string& policy = "elastic") {
    View view;
    view.job = "crowd";
    view.epoch = 1;
    view.size = nodes;
    view.policy = policy;
    for (uint32_t i = 0; i < nodes; ++i) {
      view.members.push_back({"n" + std::to_string(i), {{i, 0, 1000 + int64_t{i}, i}}});
    }
    for (uint32_t i = 0; i < nodes; ++i) {
      nodes_.push_back(std::make_unique<Node>(this, view, i, options));
    }
  }

  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }
  Node& at(uint32_t node) { return *nodes_[node]; }
  JobEngine& engine(uint32_t node) { return nodes_[node]->engine; }

  void submit(uint32_t rank, OpKey key, const Signature& signature) {
    Submission submission;
    submission.rank = rank;
    submission.ticket = ++tickets_;
    submission.key = key;
    submission.signature = signature;
    if (!engine(rank).submit(submission, now).ok()) ++refused;
    busy_.insert(rank);
  }
  void submit_all_but(const std::vector<uint32_t>& absent, OpKey key, const Signature& signature) {
    for (uint32_t rank = 0; rank < size(); ++rank) {
      const bool is = std::find(absent.begin(), absent.end(), rank) != absent.end();
      if (!is && !at(rank).mute) submit(rank, key, signature);
    }
  }

  // Until nothing moves. With a generator in any order, but for slices among themselves.
  void run(Random* order = nullptr) {
    for (bool moved = true; moved;) {
      moved = false;
      for (; !under_way_.empty(); moved = true) arrive(next(order));
      for (const uint32_t node : std::exchange(busy_, {})) {
        if (!at(node).mute && engine(node).pump(1000) > 0) busy_.insert(node);
      }
      moved |= !busy_.empty() || !under_way_.empty();
    }
  }
  void tick(Time after) {
    now += after;
    for (const auto& node : nodes_) {
      if (!node->mute) node->engine.tick(now);
    }
    run();
  }

  // The next view lacks these; the ops begin anew.
  void change_view(const std::vector<uint32_t>& lost, const std::vector<OpKey>& ops) {
    Proposal proposal;
    proposal.view = engine(lost.front() == 0 ? 1 : 0).view();
    ++proposal.view.epoch;
    for (const uint32_t node : lost) {
      at(node).mute = true;
      const auto index = proposal.view.index_of("n" + std::to_string(node));
      proposal.view.members.erase(proposal.view.members.begin() + *index);
      --proposal.view.size;
    }
    std::vector<OpFate> fates;
    for (const OpKey& key : ops) {
      OpFate& fate = fates.emplace_back();
      fate.key = key;
      fate.expected = size();
    }
    proposal.ops = std::move(fates);
    for (const auto& node : nodes_) {
      if (!node->mute) (void)node->engine.freeze();
    }
    for (const auto& node : nodes_) {
      if (!node->mute) node->engine.adopt(proposal);
    }
    for (uint32_t node = 0; node < size(); ++node) busy_.insert(node);
  }

  size_t failures() const {
    size_t count = 0;
    for (const auto& node : nodes_) count += node->failures.size();
    return count;
  }
  // How many nodes' ranks were told OK, or OK_SHRUNK, of so many ops each.
  uint32_t nodes_done(size_t ops) const {
    uint32_t count = 0;
    for (const auto& node : nodes_) {
      bool good = node->outcomes.size() == ops;
      for (const Outcome& outcome : node->outcomes) good &= outcome.verdict != Verdict::kFailed;
      count += good ? 1 : 0;
    }
    return count;
  }
  uint32_t sent(FrameType type) const {
    uint32_t count = 0;
    for (const auto& node : nodes_) count += node->sent(type);
    return count;
  }

  Time now = 100 * kSecond;
  uint32_t refused = 0;

 private:
  struct Parcel {
    uint32_t from = 0;
    uint32_t to = 0;
    Frame frame;
    std::optional<Staging> lent;
  };

  static uint32_t number_of(const std::string& node) {
    return static_cast<uint32_t>(std::stoul(node.substr(1)));
  }

  Parcel next(Random* order) {
    auto it = under_way_.begin();
    if (order != nullptr) {
      it += static_cast<std::ptrdiff_t>(order->below(std::min<size_t>(under_way_.size(), 64)));
      if (it->lent) {
        it = std::find_if(under_way_.begin(), under_way_.end(),
                          [&](const Parcel& p) { return p.lent && p.from == it->from; });
      }
    }
    Parcel parcel = std::move(*it);
    under_way_.erase(it);
    return parcel;
  }

  void arrive(const Parcel& parcel) {
    Node& to = at(parcel.to);
    busy_.insert(parcel.to);
    if (parcel.lent) busy_.insert(parcel.from);
    const auto from = to.engine.view().index_of("n" + std::to_string(parcel.from));
    if (!to.mute && !at(parcel.from).mute && from) {
      if (parcel.frame.type == FrameType::kSlice) {
        const auto slot = to.engine.on_slice(*from, parcel.frame);
        if (slot) to.engine.on_slice_landed(*slot);
      } else {
        to.engine.on_frame(*from, parcel.frame, now);
      }
    }
    if (parcel.lent) at(parcel.from).engine.on_sent(*parcel.lent);
  }

  std::vector<std::unique_ptr<Node>> nodes_;
  std::deque<Parcel> under_way_;
  std::set<uint32_t> busy_;  // nodes with something to do, perhaps
  uint64_t tickets_ = 0;
};

}  // namespace gradring::core
