#pragma once

#include <cstdint>

#include "daemon/core/report.h"
#include "proto/wire.h"

namespace gradring::daemon {

// What a view change is about: the members' reports, and the proposal that follows from them. The
// from_wire functions return false for what is malformed, and let nothing pass that an index or a
// loop of the core would have to mistrust.

// Slices of one op: what can be sent in a few bytes, as a run, must not fill the memory of who
// reads.
inline constexpr uint64_t kSlicesMax = uint64_t{1} << 24;

void to_wire(const core::Report& from, wire::Report* to);
// `epoch`: that ends.
bool from_wire(const wire::Report& from, uint64_t epoch, core::Report* to);

void to_wire(const core::Proposal& from, wire::Proposal* to);
// `job` and `ended`: of the message that carries it, which must be about the same view.
bool from_wire(const wire::Proposal& from, const JobId& job, uint64_t ended, core::Proposal* to);

}  // namespace gradring::daemon
