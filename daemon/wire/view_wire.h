#pragma once

#include <cstddef>
#include <string>

#include "daemon/core/view.h"
#include "proto/wire.h"

namespace gradring::daemon {

// Longest names that are believed, from trainers and from peers: they are kept, shown and logged.
inline constexpr size_t kJobNameMax = 256;
inline constexpr size_t kTokenMax = 256;
inline constexpr size_t kNodeNameMax = 127;
inline constexpr size_t kTextMax = 4096;
// Members are compared with one another, so the time that takes grows with their square.
inline constexpr int kMembersMax = 4096;

// Between the core's values and what daemons say to one another: views, and what is in several
// messages. The from_wire functions return false for what is malformed.
void to_wire(const core::View& from, wire::View* to);
// Lengths and epochs are bounded here; whether the view makes sense is the core's to say.
bool from_wire(const wire::View& from, core::View* to);

void to_wire(const core::RankInfo& from, wire::RankInfo* to);
bool from_wire(const wire::RankInfo& from, core::RankInfo* to);

// Sentences are made of sentences. One that grew beyond `most` is cut, between two characters:
// else nobody would believe the message that carries it.
std::string shortened(const std::string& text, size_t most = kTextMax);
void bounded_to_wire(const Failure& from, wire::Failure* to);
bool bounded_from_wire(const wire::Failure& from, Failure* to);

// Whether it can be the name of a node.
bool names_node(const std::string& name);

}  // namespace gradring::daemon
