#include "daemon/records/job_memory.h"

#include <array>
#include <utility>

namespace gradring::daemon {
namespace {

// A million slices; beyond that a daemon that is killed cannot come back to the job.
constexpr uint64_t kLogBytes = 64 << 20;

enum Part { kLog, kStaging, kKept };
constexpr std::array<const char*, 3> kParts = {"log.", "staging.", "kept."};

std::string name_of(const JobId& job, Part part) { return kParts[part] + hex(job); }

}  // namespace

tl::expected<std::shared_ptr<JobMemory>, Status> JobMemory::create(const JobId& job,
                                                                   const Sizes& sizes,
                                                                   FdStore* store) {
  auto log = RecordLog::create(kLogBytes);
  if (!log) return tl::unexpected(log.error());
  auto staging = transport::Segment::create(sizes.staging);
  if (!staging) return tl::unexpected(staging.error());
  auto kept = transport::Segment::create(sizes.kept);
  if (!kept) return tl::unexpected(kept.error());
  const std::array<int, 3> fds = {log->fd(), staging->fd(), kept->fd()};
  for (const Part part : {kLog, kStaging, kKept}) {
    const Status stored = store->keep(name_of(job, part), fds[part]);
    if (stored.ok()) continue;
    forget(job, store);
    return tl::unexpected(stored);
  }
  return std::make_shared<JobMemory>(
      JobMemory{std::move(*log), std::move(*staging), std::move(*kept)});
}

tl::expected<std::shared_ptr<JobMemory>, Status> JobMemory::adopt(const JobId& job,
                                                                  const Sizes& sizes,
                                                                  FdStore* store) {
  const auto missing = [](const std::string& what) {
    return tl::unexpected(Status(Code::kNotFound, what));
  };
  Fd log_fd = store->take(name_of(job, kLog));
  Fd staging_fd = store->take(name_of(job, kStaging));
  Fd kept_fd = store->take(name_of(job, kKept));
  if (!log_fd || !staging_fd || !kept_fd) return missing("parts of its memory were not handed on");
  auto log = RecordLog::adopt(log_fd.release());
  if (!log) return tl::unexpected(log.error());
  auto staging = transport::Segment::adopt(staging_fd.release());
  if (!staging) return tl::unexpected(staging.error());
  auto kept = transport::Segment::adopt(kept_fd.release());
  if (!kept) return tl::unexpected(kept.error());
  if (staging->memory().size() < sizes.staging) {
    return missing("its slots were others");
  }
  return std::make_shared<JobMemory>(
      JobMemory{std::move(*log), std::move(*staging), std::move(*kept)});
}

void JobMemory::forget(const JobId& job, FdStore* store) {
  for (const Part part : {kLog, kStaging, kKept}) store->forget(name_of(job, part));
}

}  // namespace gradring::daemon
