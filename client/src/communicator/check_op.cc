#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "client/src/communicator/communicator.h"
#include "client/src/limits.h"
#include "client/src/refusal.h"
#include "client/src/utf8.h"
#include "proto/hash.h"
#include "proto/reduction.h"

namespace gradring::client {
namespace {

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

// How long each block is, where the op says it. Blocks that turn out to be equal are as good as
// told by one number.
Status set_blocks(const gradring_op& op, Signature* signature) {
  if (op.counts == nullptr && op.counts_length == 0) return {};
  const std::string_view name = name_of(signature->collective);
  if (!in_blocks(signature->collective)) {
    return invalid(fmt::format("{} has no blocks; leave counts out", name));
  }
  if (op.counts == nullptr) {
    return invalid(fmt::format("counts is NULL, but counts_length is {}", op.counts_length));
  }
  const uint64_t ranks = signature->ranks;
  const bool pairs = signature->collective == Collective::kAlltoall;
  const uint64_t wanted = pairs ? ranks * ranks : ranks;
  if (op.counts_length != wanted) {
    return invalid(fmt::format("{} counts for {} of {} ranks, which has {}", op.counts_length, name,
                               ranks, wanted));
  }
  if (wanted > Blocks::kCountsMax) {
    return invalid(fmt::format("{} counts; there may be {}", wanted, Blocks::kCountsMax));
  }
  std::vector<uint64_t> counts(op.counts, op.counts + wanted);
  const auto other = [&counts](uint64_t count) { return count != counts.front(); };
  signature->count = counts.front();
  if (std::none_of(counts.begin(), counts.end(), other)) return {};
  const auto blocks = pairs ? Blocks::of_pairs(std::move(counts), static_cast<uint32_t>(ranks))
                            : Blocks::of_ranks(std::move(counts));
  if (!blocks) return invalid(fmt::format("the blocks of {} are more than any memory holds", name));
  signature->blocks = *blocks;
  signature->count = blocks->longest();
  return {};
}

}  // namespace

tl::expected<Signature, Status> check_op(const gradring_op& op, uint32_t size, bool elastic,
                                         WireType wire) {
  const auto refuse = [](std::string message) {
    return tl::unexpected(invalid(std::move(message)));
  };
  if (op.reserved != 0) {
    return tl::unexpected(Status(
        Code::kIncompatible,
        fmt::format("gradring_op.reserved is {}, which means nothing to this libgradring; zero the "
                    "whole structure before it is filled in, or install a newer one",
                    op.reserved)));
  }
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
  if (collective == static_cast<uint32_t>(Collective::kJoin)) {
    return refuse("collective 11 is that of ranks without more data; call gradring_join");
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
  if (reduces(signature.collective)) {
    if (reduce_op < 1 || reduce_op > kReduceOpLast) {
      return refuse(fmt::format("op {} does not exist", reduce_op));
    }
    signature.op = static_cast<ReduceOp>(reduce_op);
  }
  if (has_root(signature.collective)) {
    if (!elastic && op.root >= size) {
      return refuse(fmt::format("root {} does not exist in a job of size {}", op.root, size));
    }
    signature.root = op.root;
  }
  if (needs_all_ranks(signature.collective)) signature.ranks = op.ranks != 0 ? op.ranks : size;
  if (Status fault = set_blocks(op, &signature); !fault.ok()) return tl::unexpected(fault);
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
  if (Status fault = can_reduce(signature.dtype, signature.op); !fault.ok()) {
    return tl::unexpected(fault);
  }
  return signature;
}

uint64_t hash_of_name(std::string_view name) {
  return fnv1a(std::as_bytes(std::span(name.data(), name.size())));
}

}  // namespace gradring::client
