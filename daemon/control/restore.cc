// What the last life of this daemon left: sessions that wait for their trainers to attach again,
// and jobs that go on (rule R1).

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "daemon/clock.h"
#include "daemon/control/control_thread.h"
#include "daemon/control/sessions/segment_name.h"

namespace gradring::daemon {
namespace {

constexpr const char* kKilled = "its daemon was killed (restart-grace is 0)";

// Where a daemon's death is a death, its next life still speaks for what it promised, and waits so
// long for the others to hear it.
constexpr core::Time kSpeakFor = 3 * core::kSecond;

// A ticket of an op that is open still.
struct Reopened {
  Session* session = nullptr;
  uint64_t ticket = 0;
  OpenTicket segments;
};

// Where a submission's buffer lies in the memory that was handed on; null: it has none. Nothing:
// the memory is missing.
std::optional<std::byte*> lend_again(const Session& session, const core::BufferRef& buffer,
                                     uint64_t bytes) {
  if (buffer.segment == 0) return nullptr;
  const auto found = session.segments.find(buffer.segment);
  if (found == session.segments.end() || buffer.offset > found->second.bytes() ||
      bytes > found->second.bytes() - buffer.offset) {
    return std::nullopt;
  }
  return found->second.memory().data() + buffer.offset;
}

// What is under way lies by numbers in memory of that layout: in another it would be taken from a
// wrong place.
Status fits(const SliceLayout& before, const SliceLayout& now) {
  if (before == SliceLayout{} || before == now) return {};
  return {Code::kNotFound,
          fmt::format("it had {} slots for slices of {} bytes, and has {} of {} now; a restart has "
                      "to leave slots, slice-bytes and tcp-by as they are",
                      before.slots, before.slice_bytes, now.slots, now.slice_bytes)};
}

}  // namespace

void ControlThread::restore(const NodeMemory& memory) {
  const core::Time now = monotonic_now();
  for (const auto& [id, record] : memory.sessions) restore(record, now);
  for (const std::string& name : setup_.store->inherited()) {
    const auto segment = parse_segment_name(name);
    Session* session = segment ? sessions_.find(segment->session) : nullptr;
    if (session == nullptr) continue;
    auto shared = transport::Segment::adopt(setup_.store->take(name).release());
    if (shared) sessions_.adopt(*session, segment->segment, std::move(*shared));
  }
  for (const auto& [id, job] : memory.jobs) {
    const Status fit = fits(memory.layout, {setup_.identity.slots, setup_.identity.slice_bytes});
    const Status status = fit.ok() ? restore(job, now) : fit;
    if (status.ok()) {
      const auto weight = memory.weights.find(id);
      if (weight != memory.weights.end()) jobs_.set_weight(id, weight->second);
      const auto nonfinite = memory.nonfinite.find(id);
      if (nonfinite != memory.nonfinite.end()) jobs_.recall_nonfinite(id, nonfinite->second);
      continue;
    }
    Failure failure{Cause::kPeerLost, {}};
    failure.blame.node = setup_.config.node;
    failure.blame.evidence = kKilled;
    if (setup_.config.restart_grace > 0) {
      failure.blame.evidence = "its daemon was restarted and cannot go on: " + status.message();
      spdlog::error("job {} cannot go on after the restart: {}", job.view.job, status.message());
    }
    JobMemory::forget(id, setup_.store);
    for (const core::LocalPlace& place : job.local) jobs_.close(place.session, id, failure);
    membership_.bear_witness(job, failure, now);
  }
  std::vector<std::pair<SessionId, std::string>> ended;
  sessions_.for_each([&](Session& session) {
    const bool waits = session.away_until != 0;
    // Pid 0 is one that is not seen from here: whether it still runs shows when it comes back.
    if (waits && !session.pidfd && session.who.pid != 0) {
      ended.emplace_back(session.id, "ended while its daemon was restarted");
    } else if (waits && setup_.config.restart_grace == 0) {
      ended.emplace_back(session.id, kKilled);
    } else if (session.pidfd) {
      epoll_.add(session.pidfd.get(), tag_of(Source::kPidfd, session.id));
    }
  });
  for (const auto& [id, evidence] : ended) session_ended(id, evidence);
  spdlog::info("took over {} sessions and {} jobs from the last daemon", memory.sessions.size(),
               memory.jobs.size());
}

void ControlThread::restore(const wire::SessionRecord& record, core::Time now) {
  Session& session = sessions_.restore(record.session(), {record.uid(), record.pid()}, now);
  session.secret = record.secret();
  session.program = record.program();
  session.welcomed = true;
  session.resumed = true;
  session.pidfd = open_pidfd_of(record.pid());
  // A trainer that computes notices nothing until its next call; as long as its process is there,
  // that is waited for like any other slow one.
  const Config& config = setup_.config;
  session.away_until = now + (session.pidfd ? std::max(config.restart_grace, config.op_deadline)
                                            : config.restart_grace);
  session.part = static_cast<JobPart>(std::min(record.part(), uint32_t{3}));
  session.handle = record.handle();
  session.rank = record.rank();
  if (session.part != JobPart::kNone) (void)gradring::from_wire(record.job(), &session.job);
  if (record.has_failure()) (void)gradring::from_wire(record.failure(), &session.failure);
  jobs_.reserve_handle(session.handle);
  sessions_.save(session);
}

// Whose submission it is. A rank that died has no place in the job any more, and what it submitted
// counts all the same: its session is there as long as the op is open.
Session* ControlThread::session_of(const core::JobRecord& job, const core::Submission& submission) {
  const auto lent = [&](const Session& session) {
    const uint64_t segment = submission.input.segment;
    return segment == 0 || session.segments.count(segment) > 0;
  };
  for (const core::LocalPlace& place : job.local) {
    Session* session = place.rank == submission.rank ? sessions_.find(place.session) : nullptr;
    if (session != nullptr && lent(*session)) return session;
  }
  Session* dead = nullptr;
  sessions_.for_each([&](Session& session) {
    const bool was_in_it = session.part != JobPart::kNone && session.job == job.view.incarnation;
    if (was_in_it && session.rank == submission.rank && lent(session)) dead = &session;
  });
  return dead;
}

Status ControlThread::restore(const core::JobRecord& job, core::Time now) {
  const JobId& id = job.view.incarnation;
  const auto missing = [](const std::string& what) { return Status(Code::kNotFound, what); };
  auto memory = JobMemory::adopt(id, setup_.job_sizes, setup_.store);
  if (!memory) return memory.error();
  auto before = read_engine_log((*memory)->log);
  if (!before) return missing(before.error());
  const auto me = before->record.view.index_of(setup_.config.node);
  if (!me || !job.view.index_of(setup_.config.node)) return missing("this node is no member of it");

  InstallJob install{before->record.view, *me, std::move(*memory), nullptr, {}};
  std::vector<Reopened> reopened;
  for (const auto& [key, op] : before->record.ops) {
    if (op.state != core::OpState::kGathering) continue;
    for (const core::Submission& submission : op.locals) {
      Session* session = session_of(job, submission);
      if (session == nullptr) return missing("a rank with open ops has no session");
      const Extent extent = extent_of(submission.signature, submission.rank, submission.position);
      const auto input = lend_again(*session, submission.input, extent.input);
      const auto output = lend_again(*session, submission.output, extent.output);
      if (!input || !output) return missing("shared memory of an open op was not handed on");
      const OpenTicket segments{submission.input.segment, submission.output.segment};
      install.lent.push_back(
          {session->id, submission.rank, submission.ticket, key, *input, *output});
      reopened.push_back({session, submission.ticket, segments});
    }
  }
  const uint64_t engine_epoch = before->record.view.epoch;
  if (!job.fits_engine(engine_epoch)) {
    return missing("the records of its view and of its ops do not fit");
  }
  // From here on nothing can go wrong: what was not restored must leave no ticket open.
  for (const Reopened& ticket : reopened) {
    ticket.session->open[ticket.ticket] = ticket.segments;
    for (const uint64_t segment : {ticket.segments.input_segment, ticket.segments.output_segment}) {
      if (segment != 0) ++ticket.session->segments.at(segment).uses;
    }
  }
  install.before = std::make_shared<const EngineMemory>(std::move(*before));
  jobs_.restore(job.view, std::move(install));
  node_log_.save(job);
  for (const core::Member& member : job.view.members) {
    if (member.node == setup_.config.node) continue;
    // Also who is done with the job: if it is gone, whatever is still asked of it must fail.
    peers_.expect(member.node, now + std::max(setup_.config.restart_grace, kSpeakFor));
  }
  for (const core::LocalPlace& place : job.local) {
    Session* session = place.present ? sessions_.find(place.session) : nullptr;
    if (session != nullptr) jobs_.readmit(*session, id, place.rank);
  }
  membership_.restore(job, engine_epoch, now);
  for (const core::LocalPlace& place : job.local) {
    if (!place.present || sessions_.find(place.session) != nullptr) continue;
    membership_.session_lost(place.session, "ended while its daemon was restarted");
  }
  return {};
}

}  // namespace gradring::daemon
