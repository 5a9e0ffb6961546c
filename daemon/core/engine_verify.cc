// Whether all ranks got the same bits. Each member compares its ranks' results with one another
// and, by their checksum, with its predecessor's: so a difference anywhere in the ring is seen by
// somebody. Ops that members complete in different epochs are not compared.

#include <cstdio>

#include "daemon/core/job_engine.h"

namespace gradring::core {
namespace {

// A predecessor that does not verify says nothing; what waits for it is let go of.
constexpr size_t kMostWaiting = 4096;

std::string hex(uint32_t crc32c) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", crc32c);
  return text;
}

}  // namespace

void JobEngine::verify(const Op& op) {
  if (!options_.verify || op.plan.slices == 0 || op.plan.to_one()) return;
  const std::optional<ResultDigest> result = actions_->digest(op);
  if (!result) return;
  if (result->odd_rank) {
    Failure failure{Cause::kCorrupted, {}};
    failure.blame.node = view_.members[me_].node;
    failure.blame.evidence = "its ranks " + std::to_string(result->rank) + " and " +
                             std::to_string(*result->odd_rank) + " hold different results of " +
                             title(op);
    return request_failure(failure);
  }
  if (members() == 1) return;
  Frame f = frame(FrameType::kDigest, op.key);
  f.digest.crc32c = result->crc32c;
  actions_->send(successor(), f);
  digests_[op.key].ours = result->crc32c;
  compare(op.key);
}

void JobEngine::on_digest(uint32_t from, const Frame& f) {
  if (!options_.verify || from != predecessor() || members() == 1) return;
  digests_[f.key].theirs = f.digest.crc32c;
  compare(f.key);
}

void JobEngine::compare(const OpKey& key) {
  const Digests both = digests_[key];
  if (!both.ours || !both.theirs) {
    if (digests_.size() > kMostWaiting) digests_.erase(digests_.begin());
    return;
  }
  digests_.erase(key);
  if (*both.ours == *both.theirs) return;
  Failure failure{Cause::kCorrupted, {}};
  failure.blame.evidence = "nodes " + view_.members[predecessor()].node + " and " +
                           view_.members[me_].node + " hold different results of " + describe(key) +
                           " (CRC32C " + hex(*both.theirs) + " and " + hex(*both.ours) +
                           "): check the memory of both, and whether a trainer "
                           "writes to its buffers before the op has ended";
  request_failure(failure);
}

}  // namespace gradring::core
