#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/job_engine.h"
#include "daemon/core/membership.h"
#include "tests/sim/scenario.h"

namespace gradring::sim {

class World;

// One training process: joins, submits its ops step by step in an order of its own, checks every
// result, leaves.
class Trainer {
 public:
  enum class State { kWaiting, kJoining, kTraining, kLeft, kRefused, kDead };

  Trainer(World* world, uint32_t job, uint32_t rank);

  void start();
  void kill();

  void on_admit(const core::View& view);
  void on_refuse(const Status& why);
  void on_close(const Failure& failure);
  void on_complete(uint64_t ticket, const core::Outcome& outcome);

  State state() const { return state_; }
  bool over() const { return state_ >= State::kLeft && !restarting_; }
  core::SessionId session() const { return session_; }
  uint32_t node() const { return node_; }
  uint32_t life() const { return life_; }
  std::string name() const;
  std::string doing() const;  // for people
  std::byte* at(const core::BufferRef& ref) { return memory_.data() + ref.offset; }

 private:
  struct Buffers {
    uint64_t input = 0;
    uint64_t output = 0;
  };
  struct Open {
    uint32_t op = 0;
    uint32_t step = 0;
  };

  void begin_step();
  void submit(uint32_t op);
  void finish_step();
  void leave();
  void check_good(const Open& open);
  void check_failed(const Open& open);
  Signature signature_of(uint32_t op) const;
  OpKey key_of(uint32_t op, uint32_t step) const;

  World* const world_;
  const JobSpec& spec_;
  const uint32_t job_;
  const uint32_t rank_;
  const uint32_t node_;

  State state_ = State::kWaiting;
  uint32_t life_ = 0;
  core::SessionId session_ = 0;
  core::View view_;
  uint32_t step_ = 0;
  bool failed_ = false;
  bool restarting_ = false;
  uint64_t next_ticket_ = 0;
  std::map<uint64_t, Open> open_;
  uint32_t unsubmitted_ = 0;
  std::vector<std::byte> memory_;
  std::vector<Buffers> buffers_;
};

}  // namespace gradring::sim
