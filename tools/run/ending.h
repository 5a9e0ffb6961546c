#pragma once

#include <signal.h>

#include <string>

#include "tools/run/process.h"

namespace gradring::tools {

// With this exit code ends who was started to give an answer and has given it; with 0, as anything
// the function calls can end a process, it has not, and others may wait for it without end. Known
// to client/python/gradring/launched.py.
inline constexpr int kAnswered = 86;

// So ends an agent whose ranks have all ended well. With 0 ends as well what ran none of them, such
// as a command that the other host puts in the place of every other.
inline constexpr int kAgentWell = 111;

// What an agent ends with, by the exit code of its launch.
constexpr int code_of_agent(int launch) {
  if (launch == 0) return kAgentWell;
  return launch == kAgentWell ? 1 : launch;
}

// Of ranks that could not be started; more than there are failures.
inline constexpr int kNotRun = 127;

// And the number of the signal that ended it: as shells say it, and ssh that it lost a host (255).
inline constexpr int kOfSignals = 128;

// An elastic launch's exit code is the number of ranks that failed, up to this.
inline constexpr int kFailuresMax = 100;

// How a process ended.
struct Ending {
  int code = 0;       // 0: well
  std::string words;  // for people: "ended with exit code 3"
};

// `info` is waitid()'s; `answers`: it was started to give one (kAnswered).
Ending ending_of(const Process& process, bool answers, const siginfo_t& info);

}  // namespace gradring::tools
