// What can be set of a job while it runs.

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "daemon/control/door/rights.h"
#include "daemon/control/queries/job_choice.h"
#include "daemon/control/queries/queries.h"
#include "daemon/core/weights.h"
#include "daemon/notice.h"

namespace gradring::daemon {
namespace {

std::optional<uint32_t> weight_of(const std::string& text) {
  uint32_t weight = 0;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, weight);
  const bool good = error == std::errc() && last == end && weight >= core::kWeightLeast &&
                    weight <= core::kWeightMost;
  return good ? std::optional(weight) : std::nullopt;
}

}  // namespace

void Queries::set(const Asker& asker, const wire::Query& query) {
  const wire::Setting& setting = query.setting();
  const auto refuse = [&](Code code, const std::string& why) {
    answers_->refuse(asker, {code, why});
  };
  if (setting.name() != "weight") {
    return refuse(
        Code::kInvalidArgument,
        fmt::format("a job has no setting \"{}\"; what can be set: weight", setting.name()));
  }
  const auto weight = weight_of(setting.value());
  if (!weight) {
    return refuse(Code::kInvalidArgument,
                  fmt::format("a weight is a whole number from {} to {}, not \"{}\"",
                              core::kWeightLeast, core::kWeightMost, setting.value()));
  }
  const auto info = choose(parts_.membership->jobs(), query.job());
  const Jobs::Job* const job = info ? parts_.jobs->find(info->incarnation) : nullptr;
  if (job == nullptr) {
    return refuse(Code::kNotFound, fmt::format("no job {} runs on node {}; gradringctl jobs lists "
                                               "those that do",
                                               query.job(), config_.node));
  }
  // Not its owner: whoever takes more, takes it from others.
  if (!is_the_nodes(asker.uid)) {
    return refuse(Code::kPermissionDenied,
                  fmt::format("node {} is not uid {}'s to divide among jobs: set shares as root, "
                              "or as the daemon's user",
                              config_.node, asker.uid));
  }
  wire::QueryReply reply;
  wire::SetReport& report = *reply.mutable_set();
  report.set_node(config_.node);
  report.set_job(info->name);
  report.set_incarnation(hex(info->incarnation));
  report.set_name(setting.name());
  report.set_before(std::to_string(job->weight));
  report.set_now(std::to_string(*weight));
  if (*weight != job->weight) {
    tell(Notice::kWeightSet, spdlog::level::info, {{"GRADRING_JOB", info->name}},
         fmt::format("job {} ({}): weight {} instead of {}, as uid {} wants", info->name,
                     hex(info->incarnation).substr(0, 8), *weight, job->weight, asker.uid));
    parts_.jobs->set_weight(info->incarnation, *weight);
  }
  answers_->give(asker, std::move(reply));
}

}  // namespace gradring::daemon
