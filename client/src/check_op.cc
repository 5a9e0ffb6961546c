#include <fmt/format.h>

#include <cstring>

#include "client/src/communicator.h"
#include "client/src/limits.h"
#include "client/src/utf8.h"
#include "proto/reduction.h"

namespace gradring::client {
namespace {

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

// The number in an enumeration's place, which need not be one of its values.
template <class Enum>
uint32_t number_in(const Enum& field) {
  static_assert(sizeof(Enum) == sizeof(uint32_t));
  uint32_t number = 0;
  std::memcpy(&number, &field, sizeof(number));
  return number;
}

// The communicator's is for those that may have one; what an op says itself it must mean.
Status set_wire(const gradring_op& op, WireType by_default, Signature* signature) {
  const uint32_t wire = number_in(op.wire);
  const bool may = may_pack(signature->collective, signature->dtype);
  if (wire > GRADRING_WIRE_NATIVE) return invalid(fmt::format("wire {} does not exist", wire));
  if (wire == GRADRING_WIRE_NATIVE) return {};
  if (wire == GRADRING_WIRE_DEFAULT) {
    if (may) signature->wire = by_default;
    return {};
  }
  signature->wire = static_cast<WireType>(wire);
  if (may) return {};
  return invalid(fmt::format("{} of {} has no wire type; those that reduce float32 have",
                             name_of(signature->collective), name_of(signature->dtype)));
}

}  // namespace

tl::expected<Signature, Status> check_op(const gradring_op& op, uint32_t size, bool elastic,
                                         WireType wire) {
  const auto refuse = [](std::string message) {
    return tl::unexpected(invalid(std::move(message)));
  };
  const uint32_t collective = number_in(op.collective);
  const uint32_t dtype = number_in(op.dtype);
  const uint32_t reduce_op = number_in(op.op);
  if (op.name != nullptr && ::strnlen(op.name, kOpNameBytes + 1) > kOpNameBytes) {
    return refuse(fmt::format("name is longer than {} bytes", kOpNameBytes));
  }
  if (op.name != nullptr && *op.name == '\0') return refuse("name is empty; use NULL for none");
  if (op.name != nullptr && !is_utf8(op.name)) return refuse("name is not UTF-8");
  if (collective == static_cast<uint32_t>(Collective::kJoinPoint)) {
    return refuse("collective 4 is that of join points; call gradring_join_point");
  }
  if (collective < 1 || collective > kCollectiveLast) {
    return refuse(fmt::format("collective {} does not exist", collective));
  }

  Signature signature;
  signature.collective = static_cast<Collective>(collective);
  if (signature.collective == Collective::kBarrier) return signature;

  if (dtype < 1 || dtype > kDtypeLast) return refuse(fmt::format("dtype {} does not exist", dtype));
  signature.dtype = static_cast<Dtype>(dtype);
  signature.count = op.count;
  if (has_root(signature.collective)) {
    if (!elastic && op.root >= size) {
      return refuse(fmt::format("root {} does not exist in a job of size {}", op.root, size));
    }
    signature.root = op.root;
  }
  if (needs_all_ranks(signature.collective)) signature.ranks = op.ranks != 0 ? op.ranks : size;
  if (!is_sane(signature)) {
    return refuse(fmt::format("{} is more than any memory holds", describe(signature)));
  }
  if (Status fault = set_wire(op, wire, &signature); !fault.ok()) return tl::unexpected(fault);
  for (const double factor : {op.prescale, op.postscale}) {
    if (factor == 0) continue;
    Status fault = can_scale(signature.collective, signature.dtype, factor);
    if (!fault.ok()) return tl::unexpected(fault);
  }
  if (op.postscale != 0) signature.postscale = op.postscale;
  if (!reduces(signature.collective)) return signature;
  if (reduce_op < 1 || reduce_op > kReduceOpLast) {
    return refuse(fmt::format("op {} does not exist", reduce_op));
  }
  signature.op = static_cast<ReduceOp>(reduce_op);
  if (Status fault = can_reduce(signature.dtype, signature.op); !fault.ok()) {
    return tl::unexpected(fault);
  }
  return signature;
}

uint64_t hash_of_name(std::string_view name) {
  // The algorithm's published offset and prime for 64 bits.
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char character : name) {
    hash ^= static_cast<unsigned char>(character);
    hash *= 0x100000001b3u;
  }
  return hash != 0 ? hash : 1;
}

}  // namespace gradring::client
