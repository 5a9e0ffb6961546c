#include "tests/core/view_change_council.h"

#include <algorithm>

namespace gradring::core {
namespace {

View council_view(uint32_t nodes, const std::string& policy) {
  View view;
  view.job = "train";
  view.incarnation = {7};
  view.epoch = 1;
  view.size = nodes;
  view.policy = policy;
  for (uint32_t i = 0; i < nodes; ++i) {
    view.members.push_back(
        {std::string(1, static_cast<char>('a' + i)), {{i, 0, 1000 + int64_t{i}, i}}});
  }
  return view;
}

}  // namespace

class Council::Seat : public ViewChangeActions {
 public:
  Seat(Council* council, const std::string& name, const View& view)
      : change(name, view, ViewChangeOptions{}, this), council_(council), name_(name) {}

  void send(const std::string& node, const JobMessage& message) override {
    EXPECT_NE(node, name_);
    const bool promises = std::holds_alternative<change::Promise>(message) ||
                          std::holds_alternative<change::Accepted>(message);
    EXPECT_FALSE(promises && gave_up) << "takes part although it has left for good";
    council_->letters_.push_back({name_, node, message});
    council_->links_[{name_, node}].push_back(message);
  }
  void freeze(uint64_t epoch) override {
    EXPECT_FALSE(due) << "asked for a report twice";
    due = epoch;
  }
  void adopt(const Proposal& proposal) override {
    EXPECT_TRUE(proposal.view.index_of(name_).has_value());
    due.reset();
    council_->agreed(proposal);
  }
  void exclude(const Proposal& proposal) override {
    EXPECT_FALSE(proposal.view.index_of(name_).has_value());
    EXPECT_FALSE(excluded) << "told once";
    excluded = true;
    due.reset();
    council_->agreed(proposal);
  }
  void give_up(const Failure& failure) override {
    EXPECT_FALSE(gave_up) << "told once";
    gave_up = failure;
  }
  void record() override { records.push_back(change.record()); }

  ViewChange change;
  std::optional<uint64_t> due;  // a report, of this epoch
  bool excluded = false;
  std::optional<Failure> gave_up;
  std::vector<AcceptorRecord> records;

 private:
  Council* const council_;
  const std::string name_;
};

Council::Council(uint32_t nodes, const std::string& policy) {
  const View view = council_view(nodes, policy);
  for (const Member& member : view.members) {
    seats_[member.node] = std::make_unique<Seat>(this, member.node, view);
  }
}

Council::~Council() = default;

ViewChange& Council::at(const std::string& node) { return seats_.at(node)->change; }

std::vector<std::string> Council::nodes() const {
  std::vector<std::string> names;
  for (const auto& [name, seat] : seats_) names.push_back(name);
  return names;
}

void Council::agreed(const Proposal& proposal) {
  const auto [known, fresh] = views_.emplace(proposal.view.epoch, proposal);
  EXPECT_TRUE(fresh || known->second == proposal) << "two views of one epoch";
}

void Council::crash(const std::string& node) { dead_.insert(node); }

void Council::lose(const std::string& node, const std::string& lost, bool for_good) {
  Failure failure{Cause::kPeerLost, {}};
  failure.blame.node = lost;
  at(node).lost(lost, failure, for_good, now);
}

void Council::part(const std::string& one, const std::string& other) {
  for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
    hold(from, to);
    lose(from, to);
  }
}

void Council::meet(const std::string& one, const std::string& other) {
  for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
    drop(from, to);  // what was said to nobody comes no more
    release(from, to);
  }
  at(one).found(other, now);
  at(other).found(one, now);
}

void Council::crash_and_notice(const std::string& node) {
  crash(node);
  for (const std::string& other : nodes()) {
    if (dead_.count(other) == 0) lose(other, node);
  }
}

bool Council::deliver(const std::string& from, const std::string& to) {
  auto& queue = links_[{from, to}];
  if (queue.empty()) return false;
  const JobMessage message = queue.front();
  queue.pop_front();
  if (dead_.count(to) == 0) inject(from, to, message);
  return true;
}

void Council::inject(const std::string& from, const std::string& to, const JobMessage& message) {
  std::visit(
      [&](const auto& m) {
        if constexpr (requires { at(to).on_message(from, m, now); }) {
          at(to).on_message(from, m, now);
        } else {
          ADD_FAILURE() << "says what is not a view change's to say";
        }
      },
      message);
}

bool Council::report(const std::string& node) {
  Seat& seat = *seats_.at(node);
  if (!seat.due || dead_.count(node) > 0) return false;
  const uint64_t epoch = *seat.due;
  seat.due.reset();
  Report report;
  report.node = node;
  const View& view = seat.change.view();
  report.ranks = view.members[view.index_of(node).value()].ranks;
  for (const std::string& other : nodes()) {
    const bool there = dead_.count(other) == 0 && !seat.change.is_lost(other);
    if (other != node && there) report.reachable.push_back(other);
  }
  // So that no two reports are the same.
  report.ended.insert({0, static_cast<uint64_t>(now)});
  seat.change.on_report(epoch, report, now);
  return true;
}

void Council::run() {
  bool moved = true;
  while (moved) {
    moved = false;
    for (const std::string& from : nodes()) {
      for (const std::string& to : nodes()) {
        if (from != to && held_.count({from, to}) == 0) moved = deliver(from, to) || moved;
      }
      if (reports_at_once) moved = report(from) || moved;
    }
  }
}

void Council::settle(Time at_most) {
  constexpr Time kStep = 10 * kMillisecond;
  run();
  for (Time waited = 0; waited < at_most; waited += kStep) {
    tick(kStep);
    run();
  }
}

void Council::tick(Time by) {
  now += by;
  for (const std::string& node : nodes()) {
    if (dead_.count(node) == 0) at(node).tick(now);
  }
}

std::string Council::members(const std::string& node) {
  std::string text;
  for (const Member& member : at(node).view().members) {
    text += (text.empty() ? "" : " ") + member.node;
  }
  return text;
}

bool Council::excluded(const std::string& node) const { return seats_.at(node)->excluded; }

std::optional<Failure> Council::gave_up(const std::string& node) const {
  return seats_.at(node)->gave_up;
}

const std::vector<AcceptorRecord>& Council::records(const std::string& node) const {
  return seats_.at(node)->records;
}

}  // namespace gradring::core
