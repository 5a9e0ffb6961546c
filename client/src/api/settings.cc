#include "client/src/api/settings.h"

#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>

#include "client/src/api/environment.h"
#include "client/src/api/sized_struct.h"
#include "client/src/refusal.h"
#include "client/src/session/runtime_dir.h"
#include "client/src/utf8.h"

namespace gradring::client {
namespace {

// A field that options_init could not fill, with the variables it looked at.
Status missing(const char* field, std::span<const char* const> variables) {
  const std::string set = shown(variables);
  return invalid(
      fmt::format("the {} is not known: set options.{} or the environment variable {}{}", field,
                  field, fmt::join(variables, " or "),
                  set.empty() ? "" : " (" + set + ", which is not a number from 0 to 2147483647)"));
}

}  // namespace

tl::expected<Settings, Status> settings_from(const gradring_options* options) {
  // sizeof(gradring_options) of version 0.1.
  const auto copy = copy_sized(options, 56, "options (see gradring_options_init)");
  if (!copy) return tl::unexpected(copy.error());

  Settings settings;
  settings.runtime_dir = copy->runtime_dir != nullptr && *copy->runtime_dir != '\0'
                             ? copy->runtime_dir
                             : kDefaultRuntimeDir;
  // So that a path ends in one slash, and the default is recognised.
  while (settings.runtime_dir.size() > 1 && settings.runtime_dir.back() == '/') {
    settings.runtime_dir.pop_back();
  }
  if (Status length = check_length(settings.runtime_dir); !length.ok()) {
    return tl::unexpected(length);
  }

  if (copy->rank < 0) return tl::unexpected(missing("rank", kRankVariables));
  if (copy->size < 0) return tl::unexpected(missing("size", kSizeVariables));
  if (copy->rank >= copy->size) {
    return tl::unexpected(
        invalid(fmt::format("rank {} does not exist in a job of size {}: ranks are 0 .. size-1",
                            copy->rank, copy->size)));
  }
  if (copy->local_rank == kNoNumber)
    return tl::unexpected(missing("local_rank", kLocalRankVariables));
  if (copy->job == nullptr || *copy->job == '\0') {
    return tl::unexpected(invalid(
        "the job name is not known: set options.job or the environment variable GRADRING_JOB "
        "(or SLURM_JOB_ID and SLURM_STEP_ID, PMIX_NAMESPACE, TORCHELASTIC_RUN_ID, or "
        "MASTER_ADDR and MASTER_PORT), the same for all ranks"));
  }
  if (!is_utf8(copy->job)) return tl::unexpected(invalid("the job name is not UTF-8"));
  if (copy->join_timeout_ms < 0) {
    return tl::unexpected(invalid(
        "options.join_timeout_ms is negative, or GRADRING_JOIN_TIMEOUT is no whole number of "
        "seconds; 0 means the daemon's own limit"));
  }
  settings.job = copy->job;
  settings.token = copy->token != nullptr ? copy->token : "";
  settings.policy = copy->policy != nullptr && *copy->policy != '\0' ? copy->policy : "fail";
  if (!is_utf8(settings.policy)) return tl::unexpected(invalid("the policy is not UTF-8"));
  const std::string wire = copy->wire != nullptr && *copy->wire != '\0' ? copy->wire : "native";
  const std::optional<WireType> known = parse_wire_type(wire == "none" ? "native" : wire);
  if (!known) {
    return tl::unexpected(
        invalid(fmt::format("the wire type '{}' is none of native, fp16, bf16 and int8", wire)));
  }
  settings.wire = *known;
  const std::string priorities =
      copy->priorities != nullptr && *copy->priorities != '\0' ? copy->priorities : "given";
  if (priorities != "given" && priorities != "learned") {
    return tl::unexpected(
        invalid(fmt::format("priorities '{}' are neither given nor learned", priorities)));
  }
  settings.learns_priorities = priorities == "learned";
  const std::string deterministic =
      copy->deterministic != nullptr && *copy->deterministic != '\0' ? copy->deterministic : "off";
  if (deterministic != "on" && deterministic != "off") {
    return tl::unexpected(
        invalid(fmt::format("deterministic '{}' is neither on nor off", deterministic)));
  }
  settings.deterministic = deterministic == "on";
  const auto rings = rings_from_environment();
  if (!rings) return tl::unexpected(invalid("GRADRING_SUBMIT is neither ring nor zmq"));
  settings.rings = *rings;
  const auto gpu_stage_bytes = gpu_stage_bytes_from_environment();
  if (!gpu_stage_bytes) {
    return tl::unexpected(
        invalid("GRADRING_GPU_STAGE_MIB is no number of MiB of a GPU's memory; 0 means none"));
  }
  settings.gpu_stage_bytes = *gpu_stage_bytes;
  settings.rank = static_cast<uint32_t>(copy->rank);
  settings.size = static_cast<uint32_t>(copy->size);
  settings.local_rank = copy->local_rank;
  settings.join_timeout_ms = copy->join_timeout_ms;
  return settings;
}

}  // namespace gradring::client
