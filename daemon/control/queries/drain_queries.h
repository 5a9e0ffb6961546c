#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/queries/asker.h"
#include "daemon/core/time.h"
#include "proto/status.h"

namespace gradring::daemon {

struct DrainState {
  enum class Phase : uint8_t { kServing, kDraining, kStopping };
  Phase phase = Phase::kServing;
  std::vector<std::string> jobs;  // as query.proto says
  core::Time deadline = 0;        // of kDraining
  bool by_signal = false;
};

// Who can stop taking jobs, and let those end that run.
class Drainable {
 public:
  virtual ~Drainable() = default;
  // Without a timeout by the configured one; where it drains already, that is not put off. With one
  // by that, but for a signal's drain, which is only made shorter.
  virtual void drain(std::optional<core::Time> timeout) = 0;
  // Takes jobs again; only of a drain that no signal asked for.
  virtual void serve_again() = 0;
  virtual DrainState drain_state() const = 0;
};

// Drains for those who ask, and tells how far that is. Control thread only.
class DrainQueries {
 public:
  DrainQueries(std::string node, const Answers& answers, Drainable* daemon)
      : node_(std::move(node)), answers_(answers), daemon_(daemon) {}

  // Refuses with PERMISSION_DENIED, INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
  void ask(const Asker& asker, const wire::DrainOrder& order, core::Time now);
  // Tells all who wait: it has come to an end, one way or the other.
  void over(core::Time now);
  // Who heard that it goes on is about to ask again, and should hear how it ended. Who heard that
  // is about to ask whether this daemon is gone; before that, the answer may be on its way yet, and
  // a peer that passes it on would lose it with the connection.
  bool owes_its_end(core::Time now) const;
  // Tells those who have waited long enough.
  void tick(core::Time now);
  core::Time next_deadline() const;

 private:
  struct Waiting {
    Asker asker;
    core::Time until = 0;
  };
  Status fault_of(const Asker& asker, const wire::DrainOrder& order) const;
  void tell(const Asker& asker, core::Time now);
  void tell_first_waiting(core::Time now);
  void expect_again(const Asker& asker, core::Time now);
  void has_asked_again(const Asker& asker);

  const std::string node_;
  Answers answers_;
  Drainable* daemon_;
  std::vector<Waiting> waiting_;  // the first has waited longest, here and below
  std::vector<Waiting> told_;     // those who are about to ask again, until which time
};

}  // namespace gradring::daemon
