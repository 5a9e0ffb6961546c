#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/job_engine.h"
#include "daemon/core/membership.h"
#include "tests/sim/scenario.h"

namespace gradring::sim {

class World;

// One training process: joins, submits its ops step by step in an order of its own, hands in every
// result to be compared, leaves.
class Trainer {
 public:
  enum class State { kWaiting, kJoining, kTraining, kLeft, kRefused, kDead };
  static constexpr uint32_t kJoinPoint = 1000;  // in place of an op's index
  static constexpr uint32_t kNoMore = 1001;     // likewise: it has no more steps, or goes back
  static constexpr uint32_t kAnswer = 1002;     // likewise: for an op of others, that it does

  Trainer(World* world, uint32_t job, uint32_t rank);

  void start();
  // In a job within its own, for the same process.
  void take_part_in(Trainer* group);
  void kill();
  // Its host is gone, and whoever came in its place starts it anew.
  void reborn();
  // The daemon ended; the trainer waits for the next one.
  void detach() { attached_ = false; }
  // To the next daemon on its host, which has the records of the last.
  void reattach();

  void on_admit(const core::View& view);
  void on_refuse(const Status& why);
  void on_view(const core::View& view);
  void on_close(const Failure& failure);
  void on_complete(uint64_t ticket, const core::Outcome& outcome);
  // It has no more steps, and this op of the others is to have its values all the same: what it
  // would have given itself, so that the sum is what the reference says.
  void stand_in(const OpKey& key);

  State state() const { return state_; }
  const JobSpec& spec() const { return spec_; }
  bool over() const { return state_ >= State::kLeft && !restarting_; }
  core::SessionId session() const { return session_; }
  uint32_t node() const { return node_; }
  uint32_t rank() const { return rank_; }
  const JobId& job_id() const { return view_.incarnation; }
  const std::optional<core::Within>& within() const { return within_; }
  uint32_t life() const { return life_; }
  uint32_t step() const { return step_; }
  bool goes_back() const { return going_back_; }
  bool attached() const { return attached_; }
  // Since when it waits for an op of its own that it could submit; none: it waits for none.
  std::optional<Time> waits_since() const;
  std::string name() const;
  std::string doing() const;  // for people
  const std::shared_ptr<std::vector<std::byte>>& memory() const { return memory_; }
  bool waits_for(uint64_t ticket) const { return open_.count(ticket) > 0; }
  // Which op a ticket of any of its lives was for.
  std::pair<uint32_t, uint32_t> what(uint64_t ticket) const { return tickets_.at(ticket); }
  // Where the output of an open submission begins, if it is of this key.
  std::optional<uint64_t> output_of(uint64_t ticket, const OpKey& key) const;

 private:
  // Of one op, as this step submits it.
  struct Buffers {
    uint64_t first = 0;   // where its memory begins
    uint64_t second = 0;  // of its output, if that is not in place; else 0
    Signature signature;
    std::vector<uint32_t> ranks;  // that it knows of, ascending
    uint64_t input = 0;
    uint64_t output = 0;
  };

  void join();
  void begin_step();
  void submit_all();
  void submit_later(uint32_t op);
  void submit(uint32_t op);
  uint32_t number_of(uint32_t op) const;
  void send(const core::Submission& submission);
  void hand_in(const core::Submission& submission);
  void end_op(uint32_t op);
  bool turns_back_at(uint32_t op) const;
  void go_back();
  void meet();
  void answer(const OpKey& key);
  void check_met();
  void end_going_back(uint32_t op, bool good);
  void finish_step();
  void leave();
  void give_up();
  void visit();
  void come_back();
  void make_groups();
  void make(Trainer* group);
  void end_group();
  bool in_groups() const;
  Signature signature_of(uint32_t op) const;
  void prepare(uint32_t op);
  void hold_back(core::Submission* submission);
  void bring(uint64_t ticket, std::vector<std::byte> rest, uint64_t here);
  uint32_t position_in(const Buffers& b) const;
  OpKey key_of(uint32_t op, uint32_t step) const;
  std::pair<uint32_t, uint32_t> op_of(const OpKey& key) const;
  bool is_data(uint32_t op) const { return op < spec_.ops.size(); }
  uint32_t own_steps() const;

  World* const world_;
  const JobSpec& spec_;
  const uint32_t rank_;
  const uint32_t node_;

  std::vector<Trainer*> groups_;        // of its process
  Trainer* outer_ = nullptr;            // likewise
  std::optional<core::Within> within_;  // as it joined

  State state_ = State::kWaiting;
  uint32_t life_ = 0;
  core::SessionId session_ = 0;
  core::View view_;
  uint32_t step_ = 0;
  uint32_t first_step_ = 0;  // since keys began anew
  uint64_t grown_ = 1;
  uint64_t grouped_ = 0;  // for which groups were made
  uint32_t made_ = 0;     // so often since, if it is one
  bool failed_ = false;
  bool joined_ = false;       // has no more steps, or waits for all to go back
  bool going_back_ = false;   // until all have met at a join point
  bool all_joined_ = false;   // and nothing is open but what ends soon
  uint32_t joins_ = 0;        // since keys began anew
  uint32_t points_ = 0;       // likewise: join points that it has submitted
  std::set<OpKey> stood_in_;  // for since
  std::set<std::pair<uint32_t, uint32_t>> refused_;  // ops that it may stand in for all the same
  uint64_t join_value_ = 0;                          // where it lies
  bool attached_ = true;
  std::optional<core::Outcome> forgotten_;  // the job, by the new life of the daemon
  bool restarting_ = false;
  std::map<uint64_t, std::pair<uint32_t, uint32_t>> tickets_;
  std::set<uint64_t> open_;
  std::map<uint64_t, core::Submission> submissions_;  // of open tickets
  std::set<uint32_t> done_;                           // ops of this step
  uint32_t unsubmitted_ = 0;
  uint64_t memory_bytes_ = 0;
  std::shared_ptr<std::vector<std::byte>> memory_;
  std::vector<Buffers> buffers_;
};

}  // namespace gradring::sim
