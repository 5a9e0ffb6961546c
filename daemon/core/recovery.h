#pragma once

#include <map>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "daemon/core/report.h"
#include "daemon/core/view.h"

namespace gradring::core {

// The evidence of a trainer that was asked to end, as a daemon writes it (how_it_ended()).
inline constexpr const char* kEndedOnRequest = "killed by signal 15 (SIGTERM)";

// Which of the nodes that reported can be members of the next view: all of them, but for those that
// cannot reach one another (of two, the one that more others miss, else the higher name), those
// that want out, and in an elastic job those without a living rank.
std::vector<std::string> choose_members(const View& old,
                                        const std::map<std::string, Report>& reports);

// The next view and the fate of every op: a pure function of the reports of the next view's
// members, so that whoever computes it decides the same (protocol rules V3, V8). `lost`: what the
// proposer knows about members that did not report, to name them. `joiners` come in only where
// every member stands at a join point with nothing else open. `reason`: for people, why it is asked
// for where nobody is lost. `tuning`: the table from now on, if the nodes stay the same. An error
// is a contradiction between reports: a bug, or a daemon that lies; nothing may be decided then.
tl::expected<Proposal, std::string> decide(const View& old,
                                           const std::map<std::string, Report>& reports,
                                           const std::map<std::string, Failure>& lost,
                                           const std::vector<Member>& joiners,
                                           const std::string& reason = {},
                                           const std::optional<Tuning>& tuning = {});

}  // namespace gradring::core
