#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/ctl/doctor/facts.h"

namespace gradring::tools::doctor {

enum class Level { kOk, kWarn, kFail, kSkip };

// What a check came to. `remedy` is a sentence or a command; of WARN and FAIL alone.
struct Finding {
  Level level = Level::kOk;
  std::string check{};
  std::string found{};
  std::string remedy{};
};
using Findings = std::vector<Finding>;

inline Finding ok(std::string check, std::string found) {
  return {Level::kOk, std::move(check), std::move(found), ""};
}
inline Finding skip(std::string check, std::string why) {
  return {Level::kSkip, std::move(check), std::move(why), ""};
}
inline Finding warn(std::string check, std::string found, std::string remedy) {
  return {Level::kWarn, std::move(check), std::move(found), std::move(remedy)};
}
inline Finding fail(std::string check, std::string found, std::string remedy) {
  return {Level::kFail, std::move(check), std::move(found), std::move(remedy)};
}

// Of facts.nodes those that answered, this one among them.
size_t answered(const Facts& facts);

// The checks, each of its subject: pure, and with at least one finding for each name in
// docs/operate.md. Text from outside in them is printable.
Findings check_daemon(const Facts& facts);
Findings check_limits(const Facts& facts);
Findings check_host(const Facts& facts);
Findings check_network(const Facts& facts);
Findings check_rdma(const Facts& facts);
Findings check_gpus(const Facts& facts);
Findings check_peers(const Facts& facts);
Findings check_links(const Facts& facts);

}  // namespace gradring::tools::doctor
