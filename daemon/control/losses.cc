// Trainers that are lost to their jobs: that ended, whose GPU failed, or that say so themselves.

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <string>

#include "daemon/control/control_thread.h"
#include "daemon/notice.h"

namespace gradring::daemon {

// One that was in no job, or had left it, just goes.
void ControlThread::session_ended(SessionId id, const std::string& evidence) {
  Session* session = sessions_.find(id);
  if (session == nullptr || session->gone) return;
  session->gone = true;
  if (session->part == JobPart::kNone) {
    FlightEvent e{.kind = FlightKind::kTrainerDetached};
    e.value = static_cast<uint64_t>(session->who.pid);
    setup_.flight->record(e);
  } else {
    lose(session, evidence);
  }
  sessions_.unbind_route(*session);
  session->socket.reset();
  session->pidfd.reset();
  session->answers.clear();
  erase_if_free(*session);
}

void ControlThread::trainer_failed(Session* session, const std::string& evidence) {
  lose(session, evidence);
}

Failure ControlThread::lose(Session* session, const std::string& evidence,
                            const std::string& device) {
  Failure failure{Cause::kTrainerDied, {}};
  failure.blame = {session->rank, setup_.config.node, session->who.pid, device, evidence};
  FlightEvent e{.kind = FlightKind::kTrainerLost, .rank = session->rank};
  e.value = static_cast<uint64_t>(session->who.pid);
  e.job = prefix_of(session->job);
  setup_.flight->record(e, {}, evidence);
  // While the job forms, and once it is over, nobody else knows its name.
  const std::string job =
      session->job_name.empty() ? jobs_.name_of(session->job) : session->job_name;
  tell_of_job(session->who.uid, Notice::kTrainerDied, spdlog::level::info,
              {{"GRADRING_JOB", job},
               {"GRADRING_RANK", std::to_string(session->rank)},
               {"GRADRING_PID", std::to_string(session->who.pid)}},
              fmt::format("job {}: trainer rank {} ({}): {}", job, session->rank,
                          describe(session->who), evidence));
  // Who ends because its job is over is no news.
  if (session->part != JobPart::kClosed) vitals_.client_died(evidence);
  jobs_.mark_over(*session, "dead");
  rings_.close(*session, failure);
  membership_.session_lost(session->id, evidence, device);
  return failure;
}

}  // namespace gradring::daemon
