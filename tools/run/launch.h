#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "tools/run/placement.h"
#include "tools/run/process.h"

namespace gradring::tools {

// What one host is told to run: enough for an agent on another host to do it without further
// questions.
struct Launch {
  Share share;
  int size = 0;             // of the whole job
  std::vector<int> counts;  // of ranks, host by host; empty: there is one host
  std::string job;          // empty: as its launcher names it
  std::string token;
  std::string runtime_dir;               // empty: as the environment says
  std::string directory;                 // to run in
  std::vector<std::string> environment;  // NAME=VALUE, on top of the environment of the host
  std::vector<std::string> command;
  std::string policy;    // of the job; empty: as the environment says
  int restarts = 0;      // how often each rank may be started anew
  bool answers = false;  // each rank is to end with kAnswered (ending.h)
  bool tag = false;      // begin each line of output with the rank
  bool stamp = false;    // and with the time
  std::string output;    // absolute folder in which each rank's output is kept as well; empty: none
};

// What all of its ranks have in their environment, here: that of this process, without what another
// launcher said of its rank's place.
std::vector<std::string> environment_of_all(const Launch& launch);

// Up to which characters the output of its ranks is to stay whole, so that it is not mixed.
std::string_view line_ends(const Launch& launch);

// Its ranks as processes of this host.
std::vector<Process> processes_of(const Launch& launch);

// Why it cannot be told to an agent, a sentence; empty: it can. Names, arguments and variables may
// be any bytes here, but the line to another host is UTF-8.
std::string fault_of(const Launch& launch);
// For the way to an agent, of what can be told: one line without a newline, and back. The error is
// a sentence.
std::string to_line(const Launch& launch);
tl::expected<Launch, std::string> from_line(const std::string& line);

// NAME of NAME=VALUE.
std::string_view name_in(std::string_view variable);
// In an environment of such, in place of what it was.
void set(std::vector<std::string>* environment, std::string_view name, std::string_view value);

// Whether a variable goes along to another host unasked: those of gradring and of Horovod, and the
// paths that find programs and libraries.
bool goes_along(std::string_view name);
// The variables that go along: these, and `more`, each NAME (as it is here) or NAME=VALUE.
std::vector<std::string> environment_to_send(const std::vector<std::string>& more);
// Of `more`, what has to be set on this host too.
std::vector<std::string> variables_to_set(const std::vector<std::string>& more);
// What `more` sets `name` to.
std::optional<std::string> value_set(const std::string& name, const std::vector<std::string>& more);
// The same and, where that says nothing, what it is in our environment; empty: it is not set.
std::string value_of(const std::string& name, const std::vector<std::string>& more);

// Whether a job of this policy goes on when a rank fails. What else it says, the daemon judges.
bool is_elastic(const std::string& policy);

// 128 random bits in hexadecimal: a token that no other launch has.
std::string random_token();

}  // namespace gradring::tools
