// Bundles of frames from other daemons: taken apart, and each frame heard as if it had come alone.

#include <cstring>

#include "daemon/data/data_thread.h"
#include "proto/bundle.h"

namespace gradring::daemon {
namespace {

// Of bundles whose payload is on the way at one time. Over TCP there is never more than one, over
// RDMA as many as peers send in a turn; more are not credible. Who cannot be believed yet may be a
// fast peer whose ExpectPeer is still in the mailbox, and takes no room from the others.
constexpr size_t kBundlesMax = 256;
constexpr size_t kStrangeBundlesMax = 16;

}  // namespace

DataThread::Landing DataThread::on_bundle(uint8_t lane, std::span<const std::byte> header,
                                          size_t payload_bytes) {
  const auto bundle = decode_bundle(header);
  if (!bundle || bundle->bytes != payload_bytes) {
    ++frames_malformed_;
    return {};
  }
  const std::optional<PeerId> from = shared_.peers.by_token(bundle->token);
  if (bundles_.taken() >= (from ? kBundlesMax : kStrangeBundlesMax)) {
    if (from) {
      on_lost(lane, *from, "more bundles of frames came from it at one time than any daemon sends");
    } else {
      count_strange(bundle->token);
    }
    return {};
  }
  const uint64_t number = bundles_.take();
  return {bundles_.at(number).data(), number};
}

void DataThread::take_apart(uint8_t lane, std::span<const std::byte> header, uint64_t number) {
  const Bundle bundle = *decode_bundle(header);
  BundleReader parts(bundle, bundles_.at(number).first(bundle.bytes));
  while (const auto part = parts.next()) {
    if (is_bundle(part->header)) {
      ++frames_malformed_;
      continue;
    }
    Landing landing;
    if (!part->payload.empty()) {
      landing = on_header(lane, part->header, part->payload.size());
      if (landing.to == nullptr) continue;
      const bool on_host = landing.on_host != nullptr;
      std::memcpy(on_host ? landing.on_host : landing.to, part->payload.data(),
                  part->payload.size());
      if (on_host) on_landed_on_host(landing.cookie);
    }
    on_message(lane, part->header, landing.cookie);
  }
  bundles_.give_back(number);
}

}  // namespace gradring::daemon
