#include "client/src/api/environment.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "client/src/session/runtime_dir.h"

namespace gradring::client {
namespace {

constexpr const char* kRank[] = {"GRADRING_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                 "SLURM_PROCID"};
constexpr const char* kSize[] = {"GRADRING_SIZE", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                 "SLURM_NTASKS"};
constexpr const char* kLocalRank[] = {"GRADRING_LOCAL_RANK", "LOCAL_RANK",
                                      "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                      "SLURM_LOCALID"};
constexpr const char* kLocalSize[] = {"GRADRING_LOCAL_SIZE", "LOCAL_WORLD_SIZE",
                                      "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};
// Of PMIx (Open MPI 5, srun --mpi=pmix), then of Open MPI 4, which gives each mpirun its number.
constexpr const char* kMpiNamespace[] = {"PMIX_NAMESPACE", "OMPI_MCA_orte_ess_jobid",
                                         "OMPI_MCA_ess_base_jobid"};

// An empty variable is one that is not set.
const char* get(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

// The step of Slurm that this process is a task of. The shells of sbatch and salloc have no step,
// or one of the numbers at the end; they are rank 0 of as many tasks as were asked for, and start
// them.
const char* slurm_step() {
  constexpr uint32_t kSpecialSteps = 0xfffffff0;
  const char* step = get("SLURM_STEP_ID");
  if (step == nullptr || get("SLURM_JOB_ID") == nullptr) return nullptr;
  uint32_t number = 0;
  std::from_chars(step, step + std::strlen(step), number);
  return number < kSpecialSteps ? step : nullptr;
}

const char* first_set(std::span<const char* const> variables) {
  for (const char* variable : variables) {
    if (std::string_view(variable).starts_with("SLURM_") && slurm_step() == nullptr) continue;
    if (get(variable) != nullptr) return variable;
  }
  return nullptr;
}

bool is_loopback(std::string_view address) {
  return address == "localhost" || address == "::1" || address == "[::1]" ||
         address.substr(0, 4) == "127.";
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace

const std::span<const char* const> kRankVariables(kRank);
const std::span<const char* const> kSizeVariables(kSize);
const std::span<const char* const> kLocalRankVariables(kLocalRank);
const std::span<const char* const> kLocalSizeVariables(kLocalSize);

int32_t number_from(std::span<const char* const> variables) {
  const char* variable = first_set(variables);
  if (variable == nullptr) return -1;
  const std::string_view text = get(variable);
  int32_t number = kNoNumber;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && number >= 0 ? number : kNoNumber;
}

std::string shown(std::span<const char* const> variables) {
  const char* variable = first_set(variables);
  if (variable == nullptr) return {};
  return std::string(variable) + " is '" + get(variable) + "'";
}

std::optional<std::string> job_from_environment() {
  if (const char* job = get("GRADRING_JOB")) return job;

  // An mpirun inside an allocation starts those of its ranks that are on other nodes than itself in
  // a step of Slurm, and those beside it in none.
  const char* mpi = first_set(kMpiNamespace);
  if (mpi != nullptr && get("OMPI_COMM_WORLD_RANK") != nullptr) return get(mpi);

  std::string run = get("TORCHELASTIC_RUN_ID") != nullptr ? get("TORCHELASTIC_RUN_ID") : "";
  if (run == "none") run.clear();
  // Without a step the number names the whole allocation, in which several jobs may run at once;
  // and in a step several runs of torchrun may.
  if (const char* step = slurm_step()) {
    return std::string(get("SLURM_JOB_ID")) + "." + step + (run.empty() ? "" : "/" + run);
  }
  if (mpi != nullptr) return get(mpi);
  if (!run.empty()) return run;

  const char* address = get("MASTER_ADDR");
  const char* port = get("MASTER_PORT");
  if (address != nullptr && port != nullptr) {
    const std::string name = std::string(address) + ":" + port;
    // A loopback address means this host, and would else be the same name on all of them.
    return is_loopback(address) ? host_name() + "/" + name : name;
  }
  return std::nullopt;
}

std::string token_from_environment() {
  if (const char* token = get("GRADRING_JOB_TOKEN")) return token;
  // A worker group that torchrun starts again must not meet what is left of the one before. On
  // several nodes the number cannot serve: each torchrun counts the failures of its own workers
  // only, so nodes would go on with different tokens and never meet.
  const char* restart = get("TORCHELASTIC_RESTART_COUNT");
  const char* nodes = get("GROUP_WORLD_SIZE");
  if (restart != nullptr && (nodes == nullptr || std::string_view(nodes) == "1")) {
    return std::string("torchelastic-restart-") + restart;
  }
  return {};
}

std::string policy_from_environment() {
  const char* policy = get("GRADRING_POLICY");
  return policy != nullptr ? policy : "fail";
}

std::string wire_from_environment() {
  for (const char* variable : {"GRADRING_WIRE", "GRADRING_COMPRESSION"}) {
    if (const char* wire = get(variable)) return wire;
  }
  return "native";
}

std::string priorities_from_environment() {
  const char* priorities = get("GRADRING_PRIORITIES");
  return priorities != nullptr ? priorities : "given";
}

std::string deterministic_from_environment() {
  const char* deterministic = get("GRADRING_DETERMINISTIC");
  return deterministic != nullptr ? deterministic : "off";
}

int64_t join_timeout_ms_from_environment() {
  constexpr const char* kVariable[] = {"GRADRING_JOIN_TIMEOUT"};
  if (get(kVariable[0]) == nullptr) return 0;
  const int32_t seconds = number_from(kVariable);
  return seconds < 0 ? -1 : int64_t{seconds} * 1000;
}

std::optional<uint64_t> gpu_stage_bytes_from_environment() {
  constexpr const char* kVariable[] = {"GRADRING_GPU_STAGE_MIB"};
  constexpr uint64_t kDefault = uint64_t{256} << 20;
  if (get(kVariable[0]) == nullptr) return kDefault;
  const int32_t mebibytes = number_from(kVariable);
  if (mebibytes < 0) return std::nullopt;
  return static_cast<uint64_t>(mebibytes) << 20;
}

std::optional<bool> rings_from_environment() {
  const char* submit = get("GRADRING_SUBMIT");
  if (submit == nullptr || std::string_view(submit) == "ring") return true;
  if (std::string_view(submit) == "zmq") return false;
  return std::nullopt;
}

std::string runtime_dir_from_environment() {
  const char* runtime_dir = get("GRADRING_RUNTIME_DIR");
  return runtime_dir != nullptr ? runtime_dir : kDefaultRuntimeDir;
}

}  // namespace gradring::client
