#pragma once

// The acceptors and proposers of one job in one process: messages wait in one queue for each
// direction, and the test decides what arrives when. Nodes are called a, b, c, ... That no epoch
// has two views is checked here, at every commit, so that no story needs to.

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/core/view_change.h"

namespace gradring::core {

class Council {
 public:
  explicit Council(uint32_t nodes, const std::string& policy = "elastic");
  ~Council();

  ViewChange& at(const std::string& node);
  std::vector<std::string> nodes() const;

  // ---- faults ----
  void crash(const std::string& node);  // nobody notices yet; what it had sent still arrives
  void lose(const std::string& node, const std::string& lost, bool for_good = false);
  void crash_and_notice(const std::string& node);
  void part(const std::string& one, const std::string& other);  // both notice
  void meet(const std::string& one, const std::string& other);

  // ---- messages ----
  bool deliver(const std::string& from, const std::string& to);  // the oldest; false: none
  void hold(const std::string& from, const std::string& to) { held_.insert({from, to}); }
  void release(const std::string& from, const std::string& to) { held_.erase({from, to}); }
  void drop(const std::string& from, const std::string& to) { links_[{from, to}].clear(); }
  void run();                 // delivers and reports, until nothing moves; time stands still
  void settle(Time at_most);  // the same, and time passes
  void tick(Time by);
  // Everything of the type that was sent, in order.
  template <typename Message>
  std::vector<Message> sent(const std::string& from, const std::string& to) const {
    std::vector<Message> list;
    for (const Letter& letter : letters_) {
      const auto* message = std::get_if<Message>(&letter.message);
      if (letter.from == from && letter.to == to && message != nullptr) list.push_back(*message);
    }
    return list;
  }
  void inject(const std::string& from, const std::string& to, const JobMessage& message);

  // ---- engines ----
  bool reports_at_once = true;
  bool report(const std::string& node);  // the report that is due; false: none is

  // ---- what came of it ----
  uint64_t epoch(const std::string& node) { return at(node).view().epoch; }
  std::string members(const std::string& node);  // "a c"
  bool excluded(const std::string& node) const;
  std::optional<Failure> gave_up(const std::string& node) const;
  const std::vector<AcceptorRecord>& records(const std::string& node) const;

  Time now = 100 * kSecond;

 private:
  class Seat;
  struct Letter {
    std::string from;
    std::string to;
    JobMessage message;
  };
  void agreed(const Proposal& proposal);

  std::map<std::string, std::unique_ptr<Seat>> seats_;
  std::set<std::string> dead_;
  std::map<std::pair<std::string, std::string>, std::deque<JobMessage>> links_;
  std::set<std::pair<std::string, std::string>> held_;
  std::vector<Letter> letters_;
  std::map<uint64_t, Proposal> views_;  // by epoch
};

}  // namespace gradring::core
