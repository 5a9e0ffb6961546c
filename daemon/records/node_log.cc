#include "daemon/records/node_log.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "daemon/records/record_wire.h"
#include "daemon/wire/view_wire.h"

namespace gradring::daemon {
namespace {

constexpr const char* kName = "node";
constexpr uint32_t kFormat = 1;

// Views and reports of hundreds of jobs.
constexpr uint64_t kBytes = 64 << 20;

bool apply(const wire::NodeEntry& entry, const std::string& node, NodeMemory* to) {
  switch (entry.body_case()) {
    case wire::NodeEntry::kHead:
      to->life = entry.head().life();
      to->layout = {entry.head().slots(), entry.head().slice_bytes()};
      return entry.head().format() == kFormat && entry.head().node() == node;
    case wire::NodeEntry::kSession:
      to->sessions[entry.session().session()] = entry.session();
      return true;
    case wire::NodeEntry::kSessionOver:
      to->sessions.erase(entry.session_over());
      return true;
    case wire::NodeEntry::kJob: {
      core::JobRecord job;
      if (!from_wire(entry.job(), &job)) return false;
      if (entry.job().weight() != 0) to->weights[job.view.incarnation] = entry.job().weight();
      if (entry.job().has_nonfinite() &&
          !from_wire(entry.job().nonfinite(), &to->nonfinite[job.view.incarnation])) {
        return false;
      }
      to->jobs[job.view.incarnation] = std::move(job);
      return true;
    }
    case wire::NodeEntry::kJobOver: {
      JobId job{};
      if (!gradring::from_wire(entry.job_over(), &job)) return false;
      to->jobs.erase(job);
      return true;
    }
    case wire::NodeEntry::kRestoring:
      to->restoring = entry.restoring();
      return true;
    case wire::NodeEntry::BODY_NOT_SET:
      return false;
  }
  return false;
}

std::optional<NodeMemory> take_over(RecordLog* log, const std::string& node) {
  auto memory = read_node_log(*log, node);
  if (!memory) {
    spdlog::warn(
        "the last daemon's records are of another node or version, or damaged: starting anew");
    return std::nullopt;
  }
  if (memory->restoring) {
    spdlog::error(
        "the last daemon died while it took over its predecessor's records: starting anew");
    return std::nullopt;
  }
  // Until restored(): whatever is wrong with them must not bring down one daemon after the other.
  wire::NodeEntry begins;
  begins.set_restoring(true);
  log->append(begins);
  return memory;
}

}  // namespace

std::optional<NodeMemory> read_node_log(const RecordLog& log, const std::string& node) {
  NodeMemory memory;
  wire::NodeEntry entry;
  uint64_t count = 0;
  const bool whole = log.for_each([&](std::span<const std::byte> bytes) {
    return entry.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) &&
           entry.has_head() == (count++ == 0) && apply(entry, node, &memory);
  });
  // Nothing in it: that daemon was killed before it could write who it was.
  if (!whole || count == 0) return std::nullopt;
  return memory;
}

std::optional<NodeMemory> NodeLog::open(FdStore* store, const std::string& node, uint64_t life,
                                        const SliceLayout& layout) {
  node_ = node;
  life_ = life;
  layout_ = layout;
  if (!store->somebody_keeps()) return std::nullopt;
  std::optional<NodeMemory> memory;
  if (Fd fd = store->take(kName)) {
    if (auto log = RecordLog::adopt(fd.release())) {
      memory = take_over(&*log, node);
      if (memory) log_ = std::move(*log);
    }
  }
  if (memory) {
    life_ = memory->life;
    return memory;
  }
  auto log = RecordLog::create(kBytes);
  if (!log) {
    spdlog::warn("nothing outlives this daemon: {}", log.error().message());
    return std::nullopt;
  }
  if (const Status stored = store->keep(kName, log->fd()); !stored.ok()) {
    spdlog::warn("nothing outlives this daemon: {}", stored.message());
    return std::nullopt;
  }
  log_ = std::move(*log);
  begin();
  return std::nullopt;
}

void NodeLog::begin() {
  if (!log_) return;
  log_->begin_anew();
  wire::NodeEntry head;
  head.mutable_head()->set_format(kFormat);
  head.mutable_head()->set_node(node_);
  head.mutable_head()->set_life(life_);
  head.mutable_head()->set_slots(layout_.slots);
  head.mutable_head()->set_slice_bytes(layout_.slice_bytes);
  log_->append(head);
  for (const auto& [id, entry] : sessions_) log_->append(entry);
  for (const auto& [id, entry] : jobs_) log_->append(entry);
  log_->publish();
}

void NodeLog::restored() { begin(); }

void NodeLog::append(const wire::NodeEntry& entry) {
  if (!log_) return;
  log_->append(entry);
  if (log_->long_grown()) begin();
}

void NodeLog::save(const Session& session) {
  if (!log_) return;
  wire::NodeEntry& entry = sessions_[session.id];
  wire::SessionRecord* record = entry.mutable_session();
  record->Clear();
  record->set_session(session.id);
  record->set_secret(session.secret);
  record->set_uid(session.who.uid);
  record->set_pid(session.who.pid);
  record->set_program(session.program);
  const bool joined = session.part == JobPart::kJoined || session.part == JobPart::kClosed;
  record->set_part(static_cast<uint32_t>(joined ? session.part : JobPart::kNone));
  if (joined) {
    record->set_handle(session.handle);
    gradring::to_wire(session.job, record->mutable_job());
    record->set_rank(session.rank);
  }
  if (session.part == JobPart::kClosed) {
    bounded_to_wire(session.failure, record->mutable_failure());
  }
  append(wire::NodeEntry(entry));
}

void NodeLog::over(SessionId session) {
  if (!log_ || sessions_.erase(session) == 0) return;
  wire::NodeEntry entry;
  entry.set_session_over(session);
  append(entry);
}

void NodeLog::save(const core::JobRecord& job) {
  if (!log_) return;
  wire::NodeEntry& entry = jobs_[job.view.incarnation];
  const wire::JobRecord before = std::move(*entry.mutable_job());
  entry.mutable_job()->Clear();
  to_wire(job, entry.mutable_job());
  entry.mutable_job()->set_weight(before.weight());
  if (before.has_nonfinite()) *entry.mutable_job()->mutable_nonfinite() = before.nonfinite();
  append(wire::NodeEntry(entry));
}

void NodeLog::save_weight(const JobId& job, uint32_t weight) {
  const auto known = jobs_.find(job);
  if (!log_ || known == jobs_.end()) return;
  known->second.mutable_job()->set_weight(weight);
  append(wire::NodeEntry(known->second));
}

void NodeLog::save_nonfinite(const JobId& job, const NonfiniteOrigin& origin) {
  const auto known = jobs_.find(job);
  if (!log_ || known == jobs_.end()) return;
  to_wire(origin, known->second.mutable_job()->mutable_nonfinite());
  append(wire::NodeEntry(known->second));
}

void NodeLog::over(const JobId& job) {
  if (!log_ || jobs_.erase(job) == 0) return;
  wire::NodeEntry entry;
  gradring::to_wire(job, entry.mutable_job_over());
  append(entry);
}

}  // namespace gradring::daemon
