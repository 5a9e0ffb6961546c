#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/control/queries/asker.h"
#include "daemon/core/time.h"
#include "daemon/data/messages.h"

namespace gradring::daemon {

// Measurements of lanes for who asks for them: begun here, made by the data thread, and answered
// within time_for() in any case. Control thread only.
class ProbeQueries {
 public:
  // `devices`: of our lanes.
  ProbeQueries(std::string node, std::vector<std::string> devices, const Answers& answers,
               CommandBox* commands);

  // Until there is an answer, at the latest.
  static core::Time time_for(const wire::ProbeOrder& order);

  // Refuses with PERMISSION_DENIED, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, and with what the data
  // thread says.
  void ask(const Asker& asker, const wire::ProbeOrder& order, core::Time now);
  void on_ended(const ProbeEnded& ended);
  void refuse(bool all) { commands_->post(RefuseProbes{all}); }

  void tick(core::Time now);
  core::Time next_deadline() const;

 private:
  struct Pending {
    Asker asker;
    core::Time deadline = 0;
  };
  Status objection_to(uint32_t uid, const wire::ProbeOrder& order) const;

  const std::string node_;
  const std::vector<std::string> devices_;
  Answers answers_;
  CommandBox* const commands_;
  std::map<uint64_t, Pending> pending_;
  uint64_t next_ = 1;
};

}  // namespace gradring::daemon
