#include "proto/wire.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace gradring {

double factor_to_wire(double factor) { return factor == 1 ? 0 : factor; }
double factor_from_wire(double told) { return told == 0 ? 1 : told; }

void to_wire(const Signature& from, wire::Signature* to) {
  to->set_collective(static_cast<uint32_t>(from.collective));
  to->set_dtype(static_cast<uint32_t>(from.dtype));
  to->set_op(static_cast<uint32_t>(from.op));
  to->set_root(from.root);
  to->set_count(from.count);
  to->set_ranks(from.ranks);
  to->set_wire(static_cast<uint32_t>(from.wire));
  to->set_postscale(factor_to_wire(from.postscale));
  to->set_blocks(from.blocks.digest());
}

bool from_wire(const wire::Signature& from, Signature* to) {
  if (from.collective() < 1 || from.collective() > kCollectiveLast) return false;
  if (from.dtype() < 1 || from.dtype() > kDtypeLast) return false;
  if (from.op() > kReduceOpLast || from.wire() > kWireTypeLast) return false;
  to->collective = static_cast<Collective>(from.collective());
  to->dtype = static_cast<Dtype>(from.dtype());
  to->op = static_cast<ReduceOp>(from.op());
  to->root = from.root();
  to->count = from.count();
  to->ranks = from.ranks();
  to->wire = static_cast<WireType>(from.wire());
  to->postscale = factor_from_wire(from.postscale());
  to->blocks = Blocks::told(from.blocks());
  return is_sane(*to);
}

void to_wire(const Blocks& from, Counts* to) {
  to->Clear();
  if (!from.uneven()) return;
  const std::span<const uint64_t> counts = from.counts();
  to->Add(counts.begin(), counts.end());
}

bool from_wire(const Counts& from, Signature* to) {
  if (!to->blocks.uneven()) return from.empty();
  std::vector<uint64_t> counts(from.begin(), from.end());
  const bool pairs = to->collective == Collective::kAlltoall;
  const auto blocks =
      pairs ? Blocks::of_pairs(std::move(counts), to->ranks) : Blocks::of_ranks(std::move(counts));
  if (!blocks || *blocks != to->blocks) return false;
  to->blocks = *blocks;
  return is_sane(*to);
}

void to_wire(const OpKey& from, wire::OpKey* to) {
  to->set_space(from.space);
  to->set_sequence(from.sequence);
}

OpKey from_wire(const wire::OpKey& from) { return {from.space(), from.sequence()}; }

void to_wire(const Failure& from, wire::Failure* to) {
  to->set_cause(static_cast<uint32_t>(from.cause));
  wire::Blame* blame = to->mutable_blame();
  blame->set_has_rank(from.blame.rank != kNoRank);
  blame->set_rank(from.blame.rank == kNoRank ? 0 : from.blame.rank);
  blame->set_node(from.blame.node);
  blame->set_pid(from.blame.pid);
  blame->set_device(from.blame.device);
  blame->set_evidence(from.blame.evidence);
}

bool from_wire(const wire::Failure& from, Failure* to) {
  if (from.cause() > kCauseLast) return false;
  to->cause = static_cast<Cause>(from.cause());
  to->blame.rank = from.blame().has_rank() ? from.blame().rank() : kNoRank;
  to->blame.node = from.blame().node();
  to->blame.pid = from.blame().pid();
  to->blame.device = from.blame().device();
  to->blame.evidence = from.blame().evidence();
  return true;
}

void to_wire(const JobId& from, std::string* to) {
  to->assign(reinterpret_cast<const char*>(from.data()), from.size());
}

bool from_wire(const std::string& from, JobId* to) {
  if (from.size() != to->size()) return false;
  std::copy(from.begin(), from.end(), reinterpret_cast<char*>(to->data()));
  return true;
}

}  // namespace gradring
