#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "daemon/core/job_engine.h"
#include "tests/scale/host.h"
#include "tests/scale/machine.h"

namespace gradring::scale {

class Member;

// A frame that has come.
struct Parcel {
  uint32_t from = 0;
  bool local = false;  // the sender is another member on the same node
  Frame frame;
};

// What a member needs from the world around it.
class World {
 public:
  virtual ~World() = default;
  // The thread of `from` is done with a frame at that time, of which so many bytes lie in the line
  // already. `lent` is told when it has left.
  virtual void post(Member* from, Time at, uint32_t to, const Frame& frame, double ahead,
                    std::optional<core::Staging> lent) = 0;
  virtual void completed(Member* member, Time at, uint32_t rank, uint64_t ticket) = 0;
  // Whether that member is on the same node.
  virtual bool is_local(const Member& from, uint32_t to) const = 0;
  // Calls member->turn() at that time.
  virtual void schedule_turn(Member* member, Time at) = 0;
};

// One engine, the very same as the daemon's, and the thread it lives on: whatever it asks for takes
// that thread's time, as the machine says. The bytes themselves are left out.
class Member final : private core::EngineActions {
 public:
  Member(const core::View& view, uint32_t me, const core::EngineOptions& options,
         const Machine& machine, Host* host, World* world);

  // ---- what comes; the thread looks at it in its next turn ----
  void submit(const core::Submission& submission, Time now);
  void arrive(const Parcel& parcel, Time now);
  void sent(core::Staging lent, Time now);
  // All that has come, then some slices; what that costs keeps the thread busy.
  void turn(Time now);

  uint32_t number() const { return number_; }
  Host& host() { return *host_; }
  const core::JobEngine& engine() const { return engine_; }
  // How long the thread has worked.
  Time busy() const { return busy_; }
  uint64_t frames_sent() const { return frames_sent_; }
  double thinking_ms() const { return thinking_.count(); }  // in real time

 private:
  void fold(const core::FoldOrder& order) override;
  void sum(const core::SumOrder& order) override;
  void deliver(const core::Op& op, uint32_t slice, core::Staging from) override;
  std::optional<uint32_t> keep(const core::Op& op, uint32_t slice) override;
  void drop(uint32_t kept) override;
  void fetch(const core::Op& op, uint32_t slice, core::Staging to) override;
  std::optional<core::ResultDigest> digest(const core::Op&) override { return std::nullopt; }
  void send(uint32_t member, const Frame& frame) override;
  void send_slice(uint32_t member, const Frame& frame, core::Staging from) override;
  void send_direct(uint32_t member, const Frame& frame, core::Staging from) override;
  void moves(const core::Op&) override {}
  void complete(uint32_t rank, uint64_t ticket, const core::Outcome& outcome) override;
  // A model in which nothing dies has no use for these; they would mean that it is wrong.
  void fail_job(const Failure& failure) override;
  void absent(const core::Absence& absence) override { fail_job(absence.failure); }
  void condemned(const Failure& failure) override { fail_job(failure); }
  void at_join_point() override {}
  void stand_in(uint32_t, const OpKey&, const std::optional<Signature>&) override {}

  void rouse(Time now);
  uint32_t work();
  void take(const Parcel& parcel);
  Time here() const { return now_ + cost_; }
  // `reads` and `writes` in units of the slice's float32; of these so many are packed or unpacked.
  enum class By : uint8_t { kThread, kTeam };  // with helpers, where that is worth it
  void pass(By by, uint64_t bytes, WireType wire, double reads, double writes, double packs,
            double unpacks);
  // What a socket has no room for, waits here.
  struct Outgoing {
    uint32_t to = 0;
    Frame frame;
    std::optional<core::Staging> lent;
    double ahead = 0;  // bytes that the socket has taken
  };
  void give(Outgoing outgoing);
  void flush();
  Time room_at() const;

  const Machine& machine_;
  const uint32_t number_;
  Host* const host_;
  World* const world_;
  core::JobEngine engine_;
  const double locals_;

  std::deque<core::Submission> submitted_;
  std::deque<Parcel> arrived_;
  std::deque<core::Staging> sent_;
  std::deque<Outgoing> outbox_;
  bool turn_due_ = false;
  Time flush_due_ = 0;
  Time now_ = 0;   // of the turn
  Time cost_ = 0;  // of it, so far
  Time free_at_ = 0;
  Time busy_ = 0;
  uint64_t frames_sent_ = 0;
  std::chrono::duration<double, std::milli> thinking_{0};
  uint64_t kept_bytes_ = 0;
  std::vector<uint64_t> kept_;  // their lengths, by number
};

}  // namespace gradring::scale
