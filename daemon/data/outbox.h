#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "proto/frame.h"
#include "transport/transport.h"

namespace gradring::daemon {

// The transports of this node, one a lane.
using Lanes = std::vector<std::unique_ptr<transport::Transport>>;

// Sends in order, and keeps what the transport has no room for at the moment. There is no more of
// it than the protocol lets be under way: a READY for each op submitted, a slice for each slot.
class Outbox {
 public:
  explicit Outbox(const Lanes* lanes) : lanes_(lanes), kept_(lanes->size()) {}

  // False when there is no connection: nothing is kept. `loan` 0: no payload.
  bool send(uint8_t lane, transport::PeerId peer, const FrameBytes& header,
            std::span<const std::byte> payload, uint64_t loan);
  // Tries again what was kept; returns how much has gone. What cannot go any more because the
  // connection is lost is thrown away, its loans added to `returned`.
  int retry(std::vector<uint64_t>* returned);
  // Of a peer that is gone, or not to be reached on that lane.
  void drop(uint8_t lane, transport::PeerId peer, std::vector<uint64_t>* returned);
  bool empty() const { return waiting_ == 0; }

 private:
  struct Item {
    FrameBytes header;
    std::span<const std::byte> payload;
    uint64_t loan = 0;
  };

  const Lanes* const lanes_;
  std::vector<std::vector<std::deque<Item>>> kept_;  // by lane and peer
  size_t waiting_ = 0;
};

}  // namespace gradring::daemon
