#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace gradring::tools {

// A program to run as a child, in a process group of its own and, unless it hangs by a lifeline, in
// a session without a terminal: one that asked there for a password would be stopped without a
// word, and the others with it.
struct Process {
  std::string label;                     // "rank 2", for messages
  std::vector<std::string> command;      // found through PATH of `environment`
  std::vector<std::string> environment;  // all of it, NAME=VALUE
  std::string directory;                 // empty: stay here
  std::string tag;                       // begins each line it prints
  bool stamp = false;                    // the time does so, in front of the tag
  std::string_view line_ends;            // up to each of these its output stays whole; none: as is
  std::string output;                    // folder for the files stdout and stderr; empty: none
  int ranks = 1;                         // it stands for; more only behind a lifeline
  // With a value: written to its standard input, which then stays open as the thread by which it
  // hangs; closing it asks the process to end. Without: its input is empty.
  std::optional<std::string> lifeline;

  // Whether what it prints comes to us; else it prints where we do. What ssh prints does: it would
  // keep our own outputs from blocking, and the ranks beside it would lose what finds no room.
  bool piped() const {
    return stamp || !tag.empty() || !line_ends.empty() || !output.empty() || lifeline.has_value();
  }
};

// The running child. Descriptors are -1 where there is none, close on exec, and the owner's to
// close.
struct Child {
  pid_t pid = -1;  // and its process group
  int lifeline = -1;
  int out = -1;  // not blocking
  int err = -1;  // not blocking
};

// What a lifeline can be given at the start without anybody reading it: the smallest pipe Linux
// makes.
inline constexpr size_t kLifelineMax = 65536;

// As far as this user may: each child takes two or three descriptors, and some hundred hosts are
// more than the usual 1,024 are enough for. What is started has the limit of before.
void raise_file_limit();

// Starts it. It dies with the calling thread, whatever becomes of that, and what it starts in turn
// with its group, which it puts under the guard whose door this is (guard.h; -1: none). The error
// is a sentence, also when the program cannot be executed.
tl::expected<Child, std::string> start(const Process& process, int guards_door);

}  // namespace gradring::tools
