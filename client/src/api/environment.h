#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

// What launchers tell their processes through the environment.
namespace gradring::client {

// Variables in the order in which they are asked; the first that is set counts.
extern const std::span<const char* const> kRankVariables;
extern const std::span<const char* const> kSizeVariables;
extern const std::span<const char* const> kLocalRankVariables;
extern const std::span<const char* const> kLocalSizeVariables;

// What number_from gives for a variable that is set, to what is no number from 0.
inline constexpr int32_t kNoNumber = -2;

// The number in the first variable that is set; -1 if none is.
int32_t number_from(std::span<const char* const> variables);

// The first variable that is set, as "RANK is 'x'", or empty.
std::string shown(std::span<const char* const> variables);

// See gradring_options_init.
std::optional<std::string> job_from_environment();
std::string token_from_environment();
std::string policy_from_environment();
std::string wire_from_environment();
std::string priorities_from_environment();
std::string deterministic_from_environment();
std::string runtime_dir_from_environment();
// 0: not set; -1: it holds no whole number of seconds.
int64_t join_timeout_ms_from_environment();
// Bytes; nothing: GRADRING_GPU_STAGE_MIB holds no number of MiB.
std::optional<uint64_t> gpu_stage_bytes_from_environment();
// GRADRING_SUBMIT: false is zmq, by which all submissions are messages; nothing: it is neither ring
// nor zmq.
std::optional<bool> rings_from_environment();

}  // namespace gradring::client
