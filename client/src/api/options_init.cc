#include <gradring/gradring.h>

#include <new>
#include <string>
#include <utility>

#include "client/src/api/environment.h"

// The part of the C interface that needs no communicator: what launchers have told us.

namespace client = gradring::client;

void gradring_options_init(gradring_options* options) {
  if (options == nullptr) return;
  *options = gradring_options{};
  options->struct_size = sizeof(gradring_options);
  options->rank = options->size = options->local_rank = options->local_size = -1;
  options->join_timeout_ms = client::join_timeout_ms_from_environment();
  try {
    thread_local std::string runtime_dir, job, token, policy, wire, priorities, deterministic;
    options->rank = client::number_from(client::kRankVariables);
    options->size = client::number_from(client::kSizeVariables);
    options->local_rank = client::number_from(client::kLocalRankVariables);
    options->local_size = client::number_from(client::kLocalSizeVariables);
    runtime_dir = client::runtime_dir_from_environment();
    options->runtime_dir = runtime_dir.c_str();
    token = client::token_from_environment();
    options->token = token.c_str();
    policy = client::policy_from_environment();
    options->policy = policy.c_str();
    wire = client::wire_from_environment();
    options->wire = wire.c_str();
    priorities = client::priorities_from_environment();
    options->priorities = priorities.c_str();
    deterministic = client::deterministic_from_environment();
    options->deterministic = deterministic.c_str();
    if (auto name = client::job_from_environment()) {
      job = std::move(*name);
      options->job = job.c_str();
    }
  } catch (const std::bad_alloc&) {
    return;  // What could not be kept is not filled in, and gradring_open says what is missing.
  }
}
