#pragma once

// A ring of engines in one process, for stories: real (small) float memory, and a network in which
// the test decides what arrives when. Nodes are called a, b, c, ...; each hosts the same number of
// ranks, in order; rank r has pid 1000 + r. Every promise that holds at every moment is checked
// here, at every step, so that no story needs to. Stories about epochs see nodes die and views
// follow one another (engine_ring_epochs.cc).

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/job_engine.h"
#include "daemon/core/random.h"
#include "daemon/core/report.h"

namespace gradring::core {

using Values = std::vector<float>;

// One submission, by which the test asks what became of it.
struct Ticket {
  uint32_t rank = 0;
  uint64_t number = 0;
};

// A rank that has joined, and what it was asked to stand in for.
struct Asked {
  uint32_t rank = 0;
  OpKey key;
  std::optional<Signature> signature;

  bool operator==(const Asked&) const = default;
};

enum class Place { kApart, kInPlace };  // whether the output is the input

// What becomes of the frames that a node had sent when it died: they arrive, they are lost, or they
// are lost while the first slice is half there.
enum class Wake { kArrives, kLost, kTorn };

// A frame under way. The sender's staging memory stays lent until it has arrived.
struct Parcel {
  Frame frame;
  Values payload;  // as it was when it was sent
  std::optional<Staging> lent;
};

// Slices of 16 to 64 floats, so that small vectors already make many.
EngineOptions small_slices(uint32_t slots = 4);
View ring_view(uint32_t nodes, uint32_t ranks_per_node, const std::string& policy = "fail");
OpKey op(uint64_t sequence);
Signature sum_of(uint64_t count);
Signature average_of(uint64_t count);
Signature broadcast_of(uint64_t count, uint32_t root);
Signature barrier();
Signature join_point();
Signature join();
inline constexpr OpKey kJoinKey{OpKey::kNoMoreSpace, 0};
// Numbers of many magnitudes, so that another order of additions gives other bits.
Values values_of(uint32_t rank, uint64_t count, uint64_t op = 0);
// The sum of all ranks' values_of in the order of additions as it is documented: a slice starts at
// member s mod n with the sum of its ranks in ascending order, then that of the next member is
// added, and so on around the ring.
Values ring_sum(const View& view, uint64_t count, uint64_t op, uint32_t slice_floats);

inline Failure lost(const std::string& node) {
  Failure failure{Cause::kPeerLost, {}};
  failure.blame.node = node;
  return failure;
}

class Ring {
 public:
  explicit Ring(uint32_t nodes, uint32_t ranks_per_node = 1,
                const EngineOptions& options = small_slices(), const std::string& policy = "fail");
  ~Ring();

  uint32_t nodes() const { return static_cast<uint32_t>(nodes_.size()); }
  uint32_t ranks() const { return view_.size; }
  JobEngine& engine(uint32_t node);
  JobEngine& engine_of_rank(uint32_t rank) { return engine(view_.host_of(rank)); }
  const View& view() const { return view_; }  // the first one

  // ---- trainers ----
  int32_t priority = 0;                        // of what is submitted from now on
  uint64_t input_here = Submission::kAllHere;  // likewise: bytes of its input
  Ticket submit(uint32_t rank, OpKey key, const Signature& signature, Values input = {},
                Place place = Place::kApart, const std::string& name = "");
  // A submission that must be refused; why it was.
  Status refused(uint32_t rank, OpKey key, const Signature& signature);
  // All ranks submit values_of(rank, count, key.sequence); tickets by rank.
  std::vector<Ticket> submit_all(OpKey key, const Signature& signature,
                                 Place place = Place::kApart);
  // The trainer leaves in good order.
  void leave(uint32_t rank);
  bool ended(Ticket ticket) const { return outcomes_.count(ticket.number) > 0; }
  Outcome outcome(Ticket ticket) const;
  // The output at the moment of completion.
  const Values& result(Ticket ticket) const;
  // Whether all of them ended OK.
  bool all_ok(const std::vector<Ticket>& tickets) const;

  // ---- network: links are FIFO unless the test takes something out of order ----
  void pump(uint32_t node, uint32_t budget = 1000);
  bool deliver(uint32_t from, uint32_t to);                        // the oldest; false: none
  bool deliver_first(uint32_t from, uint32_t to, FrameType type);  // the oldest of its type
  void hold(uint32_t from, uint32_t to) { held_.insert({from, to}); }
  void release(uint32_t from, uint32_t to) { held_.erase({from, to}); }
  // Delivers all that is not held and pumps, until nothing moves.
  void run();
  // The same in an order drawn from the seed; frames of other types may overtake slices and one
  // another.
  void run_shuffled(uint64_t seed);
  // One step of that: a frame arrives and some node works. False: there is nothing to do.
  bool step(Random* random);
  size_t under_way(uint32_t from, uint32_t to, FrameType type) const;
  size_t under_way(FrameType type) const;
  // The oldest frame of the type on the link, left there.
  Frame peek(uint32_t from, uint32_t to, FrameType type) const;
  // Whether a slice comes damaged. Without it none does.
  std::function<bool(uint32_t from, uint32_t to, const SliceBody& slice)> damages;
  // A frame that nobody sent (or that comes once more).
  void inject(uint32_t from, uint32_t to, const Frame& frame);
  Frame frame(FrameType type, OpKey key) const;

  // ---- epochs ----
  void crash(uint32_t node, Wake wake = Wake::kLost);
  bool alive(uint32_t node) const;
  // Its daemon ends, and the next one begins with its record: frozen, so a view must follow.
  void restart(uint32_t node, Wake wake = Wake::kLost);
  // The trainer is dead, perhaps with its GPU; its engine and the next report say so.
  void lose_rank(uint32_t rank, const std::string& gpu = "");
  void freeze(uint32_t node);
  // What the reports of all living nodes come to; all must be frozen.
  Proposal decide();
  void adopt(uint32_t node, const Proposal& proposal);  // a node left out ends what it has
  // All of that, at once.
  Proposal change_view();
  const View& view_of(uint32_t node) const;

  // ---- what the engines asked for ----
  const std::vector<Failure>& failures(uint32_t node) const;  // fail_job
  size_t failures() const;
  const std::vector<Absence>& absences(uint32_t node) const;
  size_t absences() const;
  const std::vector<Failure>& condemnations(uint32_t node) const;
  size_t join_points(uint32_t node) const;  // times at_join_point was called
  const std::vector<Asked>& asked(uint32_t node) const;
  void fail_everywhere(const Failure& failure);
  // The most receive slots of the node that were in use at one moment.
  uint32_t peak_slots(uint32_t node) const;
  // Kept slices: how many there are, and how many there may be on each node.
  size_t copies(uint32_t node) const;
  // To whom units have gone from there, in order.
  const std::vector<uint32_t>& units_sent_to(uint32_t node) const;
  uint32_t copies_ever(uint32_t node) const;
  size_t room = 1'000'000;
  // Results of these ranks of these nodes are not what they should be.
  std::set<std::pair<uint32_t, uint32_t>> garbled;

  Time now = 100 * kSecond;

 private:
  class Node;
  struct Account {
    Ticket ticket;
    size_t input = 0;  // index into memory_
    size_t output = 0;
  };

  bool of_later_epoch(uint32_t to, const Frame& frame) const;
  std::vector<size_t> deliverable(uint32_t from, uint32_t to) const;
  void deliver_at(uint32_t from, uint32_t to, size_t index);
  void check_slots();
  std::deque<Parcel>& link(uint32_t from, uint32_t to) { return links_[{from, to}]; }

  const View view_;
  const EngineOptions options_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<std::pair<uint32_t, uint32_t>, std::deque<Parcel>> links_;
  std::set<std::pair<uint32_t, uint32_t>> held_;
  std::deque<Values> memory_;
  std::map<uint64_t, Account> accounts_;  // by ticket number
  std::map<uint64_t, Outcome> outcomes_;
  std::map<uint64_t, Values> results_;
  std::map<uint32_t, Failure> lost_ranks_;
  uint64_t next_ticket_ = 1;
};

}  // namespace gradring::core
