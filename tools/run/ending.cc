#include "tools/run/ending.h"

#include <fmt/format.h>

#include <cstring>

namespace gradring::tools {
namespace {

// Its exit code as a launch sees it. An agent has judged its own ranks.
int judge(const Process& process, bool answers, int status) {
  const bool agent = process.lifeline.has_value();
  if (!agent && !answers) return status;
  if (status == (agent ? kAgentWell : kAnswered)) return 0;
  if (status != 0) return status;
  return agent ? kNotRun : 1;
}

}  // namespace

Ending ending_of(const Process& process, bool answers, const siginfo_t& info) {
  const int status = info.si_status;
  if (info.si_code != CLD_EXITED) {
    return {kOfSignals + status,
            fmt::format("was ended by signal {} ({})", status, strsignal(status))};
  }
  const int code = judge(process, answers, status);
  const bool silent = status == 0 && code != 0;
  if (silent && process.lifeline) {
    return {code,
            fmt::format("ended with exit code 0, and not as gradring-run does there: what does {} "
                        "run on that host, and does it tell how that ended?",
                        process.command.front())};
  }
  return {code, fmt::format("ended with exit code {}{}", status,
                            silent ? " before it had handed over what its function returns" : "")};
}

}  // namespace gradring::tools
