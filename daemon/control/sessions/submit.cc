// A submission on its way to the data thread.

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "daemon/check_operation.h"
#include "daemon/control/sessions/requests.h"

namespace gradring::daemon {
namespace {

// As many as a job's engine keeps open for one rank; more would only be refused there.
constexpr size_t kOpenTicketsMax = 65536;
// Of unequal blocks, in all of these: 64 ops with as many as there can be. They take 24 bytes each.
constexpr uint64_t kOpenCountsMax = 64 * Blocks::kCountsMax;
// Of a job that has yet to come about; they are kept as they came.
constexpr size_t kEarlyMax = 1024;
constexpr size_t kEarlyBytesMax = 1 << 20;

class SegmentsOf final : public TrainerMemory {
 public:
  explicit SegmentsOf(const Session& session) : session_(session) {}
  std::optional<std::span<std::byte>> find(uint64_t segment) const override {
    const auto it = session_.segments.find(segment);
    if (it == session_.segments.end()) return std::nullopt;
    return it->second.memory();
  }
  const transport::OpenGpuMemory* gpu(uint64_t segment) const override {
    const auto it = session_.segments.find(segment);
    if (it == session_.segments.end() || !it->second.gpu) return nullptr;
    return it->second.gpu->open.get();
  }

 private:
  const Session& session_;
};

}  // namespace

void Requests::submit(Session& session, const wire::Submit& submit) {
  if (session.part == JobPart::kJoining && submit.job() == 0) {
    for (const wire::Operation& operation : submit.operations()) keep_early(session, operation);
    return;
  }
  const std::string fault = fault_of_handle(session, submit.job());
  std::vector<uint64_t> seen(submit.seen().begin(), submit.seen().end());
  for (const wire::Operation& operation : submit.operations()) {
    if (!fault.empty()) {
      refuse_submission(session, operation.ticket(), fault);
    } else {
      this->submit(session, operation, std::exchange(seen, {}));
    }
  }
}

void Requests::keep_early(Session& session, const wire::Operation& operation) {
  session.early_bytes += operation.ByteSizeLong();
  if (session.early.size() >= kEarlyMax || session.early_bytes > kEarlyBytesMax) {
    return refuse_submission(session, operation.ticket(),
                             fmt::format("{} ops wait for their job to come about already; wait "
                                         "for some first",
                                         session.early.size()));
  }
  session.early.push_back(operation);
  early_.insert(session.id);
}

int Requests::submit_early() {
  int work = 0;
  std::erase_if(early_, [&](SessionId id) {
    Session* session = parts_.sessions->find(id);
    if (session == nullptr || session->gone) return true;
    if (session->part == JobPart::kJoining) return false;
    const bool refused = session->part == JobPart::kNone;
    session->early_bytes = 0;
    for (const wire::Operation& operation : std::exchange(session->early, {})) {
      ++work;
      if (refused) {
        refuse_submission(*session, operation.ticket(), "its job did not come about");
      } else {
        submit(*session, operation, {});
      }
    }
    return true;
  });
  return work;
}

void Requests::submit(Session& session, const wire::Operation& operation,
                      std::vector<uint64_t> seen) {
  const uint64_t ticket = operation.ticket();
  if (session.open.count(ticket) > 0) {
    // Known from before a restart; its end is to come.
    if (session.resumed) return;
    // There is no other name for it, so the first of the two is the one that will be told of.
    return refuse_submission(session, ticket,
                             fmt::format("ticket {} is in use by an open op", ticket));
  }
  if (session.open.size() >= kOpenTicketsMax) {
    return refuse_submission(
        session, ticket,
        fmt::format("{} ops are open already; wait for some first", kOpenTicketsMax));
  }
  const auto counts = static_cast<uint64_t>(operation.counts_size());
  if (session.open_counts + counts > kOpenCountsMax) {
    return refuse_submission(session, ticket,
                             fmt::format("{} counts of unequal blocks are open already; wait for "
                                         "some of these ops first",
                                         session.open_counts));
  }
  auto checked = check_operation(operation, session.rank, SegmentsOf(session));
  if (!checked) return refuse_submission(session, ticket, checked.error());
  // After a restart the data thread may know its end, which then is the one that counts.
  if (session.part == JobPart::kClosed && (!session.resumed || !parts_.jobs->find(session.job))) {
    core::Outcome outcome;
    outcome.verdict = Verdict::kFailed;
    outcome.failure = session.failure;
    return parts_.clients->complete(session, ticket, outcome);
  }
  OpenTicket segments = segments_of(checked->submission);
  segments.counts = counts;
  session.open_counts += counts;
  session.open[ticket] = segments;
  for (const uint64_t segment : {segments.input_segment, segments.output_segment}) {
    if (segment != 0) ++session.segments.at(segment).uses;
  }
  parts_.commands->post(Submit{session.id, session.job, std::move(checked->submission),
                               checked->input, checked->output, std::move(seen), nullptr,
                               checked->reached, checked->ended, checked->part_bytes,
                               checked->gpu_input, checked->gpu_output});
}

void Requests::refuse_submission(Session& session, uint64_t ticket, const std::string& why) {
  core::Outcome outcome = core::refused(session.rank, why);
  outcome.failure.blame.node = config_.node;
  outcome.failure.blame.pid = session.who.pid;
  parts_.clients->complete(session, ticket, outcome);
}

std::string Requests::fault_of_handle(const Session& session, uint64_t handle) const {
  const bool joined = session.part == JobPart::kJoined || session.part == JobPart::kClosed;
  // 0: that of this session, whose library had not heard its number when it submitted.
  if (joined && (handle == session.handle || handle == 0)) return "";
  const Session* owner = parts_.sessions->find_by_handle(handle);
  if (owner != nullptr && owner != &session) {
    return fmt::format("job {} belongs to another session (uid {})", handle, owner->who.uid);
  }
  return joined ? fmt::format("this session has no job {}; it is in job {}", handle, session.handle)
                : fmt::format("this session has no job {}: join one first", handle);
}

}  // namespace gradring::daemon
