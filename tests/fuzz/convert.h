#pragma once

#include "proto/wire.h"
#include "tests/fuzz/fuzz.h"

// What must hold for the parts of any message that parses: a conversion refuses, or its result goes
// back into the same message.
namespace gradring::fuzz {

template <typename Message>
void check_reparses(const Message& message) {
  Message again;
  require(again.ParseFromString(message.SerializeAsString()), "a parsed message parses again");
  require(again.SerializeAsString() == message.SerializeAsString(), "and is the same");
}

inline void check_signature(const wire::Signature& message) {
  Signature signature;
  if (!from_wire(message, &signature)) return;
  require(size_of(signature.dtype) != 0, "an accepted type has a size");
  require(signature.count == 0 || signature.bytes() / signature.count == size_of(signature.dtype),
          "its bytes do not overflow");
  require(describe(signature).find("unknown") == std::string::npos, "it can be described");
  wire::Signature again;
  to_wire(signature, &again);
  Signature twice;
  require(from_wire(again, &twice) && twice == signature, "a signature survives the trip");
  require(again.count() == message.count() && again.root() == message.root(), "nothing is cut off");
}

inline void check_key(const wire::OpKey& message) {
  wire::OpKey again;
  to_wire(from_wire(message), &again);
  require(again.space() == message.space() && again.sequence() == message.sequence(),
          "a key survives the trip");
}

inline void check_failure(const wire::Failure& message) {
  Failure failure;
  if (!from_wire(message, &failure)) return;
  require(describe(failure).find("unknown") != 0, "an accepted cause has a name");
  wire::Failure again;
  to_wire(failure, &again);
  Failure twice;
  require(from_wire(again, &twice) && twice == failure, "a failure survives the trip");
}

inline void check_job_id(const std::string& bytes) {
  JobId id;
  if (!from_wire(bytes, &id)) return;
  std::string again;
  to_wire(id, &again);
  require(again == bytes, "a job id survives the trip");
}

inline void check_view(const wire::View& message) { check_job_id(message.incarnation()); }

}  // namespace gradring::fuzz
