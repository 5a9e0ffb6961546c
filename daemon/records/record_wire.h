#pragma once

#include "daemon/core/engine_record.h"
#include "daemon/core/job_engine.h"
#include "daemon/core/job_record.h"
#include "daemon/data/kept_slices.h"
#include "daemon/data/nonfinite_origin.h"
#include "proto/wire.h"
#include "record.pb.h"

namespace gradring::daemon {

// Between what the core must not forget and how it is written down (proto/record.proto). The
// from_wire functions return false for what no daemon of ours wrote.

void to_wire(const core::JobRecord& from, wire::JobRecord* to);
bool from_wire(const wire::JobRecord& from, core::JobRecord* to);

void to_wire(const NonfiniteOrigin& from, wire::NonfiniteRecord* to);
bool from_wire(const wire::NonfiniteRecord& from, NonfiniteOrigin* to);

void to_wire(const core::LocalRecord& from, wire::LocalRecord* to);
bool from_wire(const wire::LocalRecord& from, core::LocalRecord* to);

void to_wire(const core::Submission& from, wire::SubmissionRecord* to);
// `key` and `name`: of its op.
bool from_wire(const wire::SubmissionRecord& from, const OpKey& key, const std::string& name,
               core::Submission* to);

// Where the copies of an op's slices lie.
using KeptPlaces = std::map<uint32_t, KeptSlices::Place>;  // by number

void to_wire(uint32_t number, const KeptSlices::Place& from, wire::KeptPlace* to);

// `kept` has the copies that its slices name by number.
void to_wire(const core::OpRecord& from, const KeptSlices& kept, wire::OpRecord* to);
bool from_wire(const wire::OpRecord& from, core::OpRecord* to, KeptPlaces* places);

// The view, what has ended and failed, and the fates of ops that are not here; not the ops.
void to_wire(const core::EngineRecord& from, wire::EngineHead* to);
bool from_wire(const wire::EngineHead& from, core::EngineRecord* to);

void to_wire(core::SessionId session, uint64_t ticket, const core::Outcome& from, wire::Told* to);
bool from_wire(const wire::Told& from, core::Outcome* to);

}  // namespace gradring::daemon
