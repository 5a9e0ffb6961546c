// What is said of a job that some rank does not come to.
#include "client/src/communicator/forming.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "client/src/communicator/awaiting.h"
#include "client/src/communicator/communicator.h"
#include "client/src/limits.h"

namespace gradring::client {
namespace {

std::mutex forming_mutex;
FormingWatch forming_watched;

}  // namespace

void set_forming_watch(const FormingWatch& wanted) {
  const std::lock_guard lock(forming_mutex);
  forming_watched = wanted;
}

FormingWatch forming_watch() {
  const std::lock_guard lock(forming_mutex);
  return forming_watched;
}

// The daemon's own sentence tells of a group which ranks of the job it lacks, and of any job where
// else such a rank is; its list tells their numbers.
std::optional<std::string> forming_in_words(const wire::JobReport& report, uint32_t rank,
                                            bool group) {
  const wire::JobSummary& summary = report.summary();
  if (summary.state() != "forming") return std::nullopt;
  std::set<uint32_t> missing;
  for (const auto& one : report.ranks()) {
    if (one.state() == "not joined") missing.insert(one.rank());
  }
  uint32_t first = 0;
  while (missing.contains(first)) ++first;
  if (!missing.empty() && first != rank) return std::nullopt;
  const std::string& said = summary.explanation();
  std::string words = said;
  if (!group && !missing.empty()) {
    words = describe(awaiting_from(report, {}));
    if (const size_t more = said.find("; "); more != std::string::npos) words += said.substr(more);
  }
  return fmt::format("job {} {}", summary.name(), words);
}

// For the thread that waits in join(), which holds the lock.
void Communicator::tell_forming(std::unique_lock<std::mutex>& lock, TimePoint since) {
  const FormingWatch told = forming_watch();
  if (told.tell == nullptr) return;
  wire::ClientMessage message;
  wire::Query& query = *message.mutable_query();
  query.set_what(wire::Query::JOB);
  query.set_own_part(true);
  query.set_job(settings_.job);
  const auto answer = session_.call(lock, std::move(message), wire::DaemonMessage::kReply,
                                    Clock::now() + kProgressTime);
  std::optional<std::string> words;
  if (answer) {
    words = forming_in_words(answer->reply().job(), settings_.rank, settings_.within.has_value());
  } else if (!session_.over() && answer.error().code() == Code::kDeadlineExceeded) {
    words = fmt::format("job {}: {}", settings_.job, answer.error().message());
  }
  if (!words) return;
  const uint32_t rank = settings_.within ? settings_.within->ranks[settings_.rank] : settings_.rank;
  const auto waited =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since).count();
  lock.unlock();
  told.tell(told.context, static_cast<int32_t>(rank), waited, words->c_str());
  lock.lock();
}

}  // namespace gradring::client
