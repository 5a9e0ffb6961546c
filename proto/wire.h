#pragma once

#include "client.pb.h"
#include "common.pb.h"
#include "peer.pb.h"
#include "proto/types.h"
#include "proto/verdict.h"

namespace gradring {

// Between the plain types and their protobuf twins. The from_wire functions check every enumeration
// and length; false means the message is malformed and nothing of the output may be used.
// A factor of 1 is not told, as a message of somebody who knows none has it.
double factor_to_wire(double factor);
double factor_from_wire(double told);
void to_wire(const Signature& from, wire::Signature* to);
bool from_wire(const wire::Signature& from, Signature* to);
// The counts of its blocks are told beside it, where they are needed: a signature that has come
// knows their digest alone until it gets them.
using Counts = google::protobuf::RepeatedField<uint64_t>;
void to_wire(const Blocks& from, Counts* to);
bool from_wire(const Counts& from, Signature* to);
void to_wire(const OpKey& from, wire::OpKey* to);
OpKey from_wire(const wire::OpKey& from);
void to_wire(const Failure& from, wire::Failure* to);
bool from_wire(const wire::Failure& from, Failure* to);
void to_wire(const JobId& from, std::string* to);
bool from_wire(const std::string& from, JobId* to);

}  // namespace gradring
