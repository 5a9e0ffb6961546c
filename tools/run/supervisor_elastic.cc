// What becomes of a rank that an elastic job has lost.
#include <fmt/format.h>
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "tools/run/supervisor.h"

namespace gradring::tools {

// The others go on without it.
void Supervisor::lose(Member& member, const Ending& ending) {
  const auto& [code, how] = ending;
  const pid_t pid = member.child.pid;
  // What it started holds its memory and its place on the node, and would hold its output open.
  if (!member.process.lifeline) kill(-pid, SIGKILL);
  const bool restarts = member.restarts < rules_.restarts && !member.process.lifeline;
  if (restarts && others_are_done(member)) {
    say(
        fmt::format("{} (pid {}) {}; not starting it anew, as all others have ended: there is no "
                    "job to come into",
                    member.process.label, pid, how));
  } else if (restarts) {
    ++member.restarts;
    say(fmt::format("{} (pid {}) {}; starting it anew, {} of {}", member.process.label, pid, how,
                    member.restarts, rules_.restarts));
    if (start_anew(member)) return;
  } else {
    const auto left = std::ranges::count(members_, false, &Member::ended);
    say(fmt::format("{} (pid {}) {}; {} still running", member.process.label, pid, how, left));
  }
  // An agent has counted its own; one that did not come to that has lost them all.
  const int ranks = member.process.ranks;
  failures_ += code <= std::min(ranks, kFailuresMax) ? code : ranks;
}

bool Supervisor::start_anew(Member& member) {
  member.out.drain(&member.child.out, true);
  member.err.drain(&member.child.err, true);
  const auto child = start(member.process, guards_door_);
  if (!child) {
    say(child.error());
    return false;
  }
  former_.push_back(member.child.pid);
  member.child = *child;
  member.ended = false;
  return true;
}

// Whether the job that it would come into is over: nobody else is left, and some have ended well.
// It would wait for them until its time to form is over.
bool Supervisor::others_are_done(const Member& lost) const {
  if (rules_.elsewhere && !others_done_) return false;
  bool well = others_done_;
  for (const Member& member : members_) {
    if (&member == &lost) continue;
    if (!member.ended) return false;
    well = well || member.well;
  }
  return well;
}

// An agent sees only the ranks of its own host.
void Supervisor::tell_whom_all_have_left() {
  for (const Member& member : members_) {
    if (member.child.lifeline < 0 || member.ended || !others_are_done(member)) continue;
    pollfd lifeline{member.child.lifeline, POLLOUT, 0};
    if (poll(&lifeline, 1, 0) != 1 || write(lifeline.fd, &kOthersDone, 1) != 1)
      say(fmt::format("{} could not be told that all others have ended", member.process.label));
  }
}

}  // namespace gradring::tools
