#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "daemon/data/bundle_memory.h"
#include "proto/bundle.h"
#include "proto/frame.h"
#include "transport/transport.h"

namespace gradring::daemon {

// The transports of this node, one a lane.
using Lanes = std::vector<std::unique_ptr<transport::Transport>>;

// Sends in order, and keeps what the transport has no room for at the moment. There is no more of
// it than the protocol lets be under way: a READY for each op submitted, a slice for each slot.
//
// Small frames share messages (proto/bundle.h): the first of a turn to a peer goes at once, so that
// a lone one never waits; those that follow are gathered until flush(), until there are enough for
// a message, or until something large follows them.
class Outbox {
 public:
  // A frame with a longer payload goes by itself: a message costs some microseconds, and a copy of
  // this a tenth of one.
  static constexpr size_t kGatheredPayloadMax = 4096;

  // `bundle_bytes`: of the longest bundle that this node sends; 0: each frame goes by itself.
  explicit Outbox(const Lanes* lanes, size_t bundle_bytes = 0)
      : lanes_(lanes),
        bundle_bytes_(bundle_bytes),
        lines_(lanes->size()),
        memory_(std::min(bundle_bytes, kBundleBytesMax)) {}

  // The longest bundle that the peer takes; 0, as it is at first: it has never heard of them.
  void takes_bundles(transport::PeerId peer, size_t bytes);

  // kNowhere: there is no connection, and nothing is kept. kCopied: `loan` ended with the call.
  // Else the payload is lent until the transport, retry() or drop() gives it back. `loan` 0: there
  // is no payload.
  enum class Sent : uint8_t { kNowhere, kCopied, kLent };
  Sent send(uint8_t lane, transport::PeerId peer, const FrameBytes& header,
            std::span<const std::byte> payload, uint64_t loan);
  // What was gathered goes, and the next turn begins.
  void flush();
  // Tries again what was kept; returns how much has gone. What cannot go any more because the
  // connection is lost is thrown away, its loans added to `returned`.
  int retry(std::vector<uint64_t>* returned);
  // Of a peer that is gone, or not to be reached on that lane.
  void drop(uint8_t lane, transport::PeerId peer, std::vector<uint64_t>* returned);
  bool empty() const { return waiting_ == 0; }

  // A token of the transport that is no loan of the ledger's: a bundle has gone.
  void on_bundle_sent(uint64_t token) { memory_.give_back(token); }
  // Whether something of ours is with the transport.
  bool lends() const { return memory_.taken() > 0; }

  uint64_t bundles() const { return bundles_; }
  uint64_t frames_bundled() const { return frames_bundled_; }

 private:
  struct Item {
    FrameBytes header;
    std::span<const std::byte> payload;
    uint64_t loan = 0;
  };
  // One lane to one peer.
  struct Line {
    std::deque<Item> kept;
    uint64_t turn = 0;  // in which the last small frame went
    Bundle gathered;    // in the memory of this number, if there is any
    uint64_t memory = 0;
  };

  Line& line_to(uint8_t lane, transport::PeerId peer);
  size_t room_at(transport::PeerId peer) const;
  bool pass_on(uint8_t lane, transport::PeerId peer, const Item& item);
  void gather(uint8_t lane, transport::PeerId peer, const FrameBytes& header,
              std::span<const std::byte> payload);
  void send_gathered(uint8_t lane, transport::PeerId peer);

  const Lanes* const lanes_;
  const size_t bundle_bytes_;
  std::vector<std::vector<Line>> lines_;  // by lane and peer
  std::vector<size_t> taken_by_;          // by peer: bytes of a bundle
  BundleMemory memory_;
  std::vector<std::pair<uint8_t, transport::PeerId>> gathering_;  // where flush() is to look
  uint64_t turn_ = 1;
  size_t waiting_ = 0;
  uint64_t bundles_ = 0;
  uint64_t frames_bundled_ = 0;
};

}  // namespace gradring::daemon
