// What the last life of this daemon left: sessions that wait for their trainers to attach again,
// and jobs that go on (rule R1).

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/clock.h"
#include "daemon/control/control_thread.h"
#include "daemon/control/segment_name.h"

namespace gradring::daemon {
namespace {

// Where a daemon's death is a death, its next life still speaks for what it promised, and waits so
// long for the others to hear it.
constexpr core::Time kSpeakFor = 3 * core::kSecond;

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
    const Status status = restore(job, now);
    if (status.ok()) continue;
    spdlog::error("job {} cannot go on after the restart: {}", job.view.job, status.message());
    JobMemory::forget(id, setup_.store);
    Failure failure{Cause::kPeerLost, {}};
    failure.blame.node = setup_.config.node;
    failure.blame.evidence = "its daemon was restarted and cannot go on: " + status.message();
    for (const core::LocalPlace& place : job.local) jobs_.close(place.session, id, failure);
  }
  std::vector<std::pair<SessionId, std::string>> ended;
  sessions_.for_each([&](Session& session) {
    const bool waits = session.away_until != 0;
    if (waits && !session.pidfd) {
      ended.emplace_back(session.id, "ended while its daemon was restarted");
    } else if (waits && setup_.config.restart_grace == 0) {
      ended.emplace_back(session.id, "its daemon was killed (restart-grace is 0)");
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
  session.size = record.size();
  if (session.part != JobPart::kNone) (void)gradring::from_wire(record.job(), &session.job);
  if (record.has_failure()) (void)gradring::from_wire(record.failure(), &session.failure);
  jobs_.reserve_handle(session.handle);
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
  for (const auto& [key, op] : before->record.ops) {
    if (op.state != core::OpState::kGathering) continue;
    for (const core::Submission& submission : op.locals) {
      const auto place = std::find_if(
          job.local.begin(), job.local.end(),
          [&](const core::LocalPlace& local) { return local.rank == submission.rank; });
      Session* session = place == job.local.end() ? nullptr : sessions_.find(place->session);
      if (session == nullptr) return missing("a rank with open ops has no session");
      InstallJob::Lent lent{session->id, submission.rank, submission.ticket, key, nullptr, nullptr};
      OpenTicket& open = session->open[submission.ticket];
      const uint64_t bytes = submission.signature.bytes();
      const auto address = [&](const core::BufferRef& buffer) -> std::byte* {
        const auto segment = session->segments.find(buffer.segment);
        if (segment == session->segments.end() || buffer.offset > segment->second.bytes() ||
            bytes > segment->second.bytes() - buffer.offset) {
          return nullptr;
        }
        ++segment->second.uses;
        return segment->second.segment.memory().data() + buffer.offset;
      };
      if (submission.input.segment == 0 && submission.output.segment == 0) {
        install.lent.push_back(lent);
        continue;
      }
      lent.input = address(submission.input);
      if (lent.input != nullptr) open.input_segment = submission.input.segment;
      lent.output = address(submission.output);
      if (lent.output != nullptr) open.output_segment = submission.output.segment;
      if (bytes > 0 && (lent.input == nullptr || lent.output == nullptr)) {
        return missing("shared memory of an open op was not handed on");
      }
      install.lent.push_back(lent);
    }
  }
  const uint64_t engine_epoch = before->record.view.epoch;
  const uint64_t epoch = std::max(job.acceptor.epoch, job.view.epoch);
  if (engine_epoch > epoch || engine_epoch + 1 < epoch) {
    return missing("the records of its view and of its ops do not fit");
  }
  install.before = std::make_shared<const EngineMemory>(std::move(*before));
  jobs_.restore(job.view, std::move(install));
  node_log_.save(job);
  for (const core::Member& member : job.view.members) {
    if (member.node == setup_.config.node || job.done.count(member.node) > 0) continue;
    peers_.expect(member.node, now + std::max(setup_.config.restart_grace, kSpeakFor));
  }
  membership_.restore(job, engine_epoch, now);
  return {};
}

}  // namespace gradring::daemon
