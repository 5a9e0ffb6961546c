#include "daemon/data/outbox.h"

namespace gradring::daemon {

bool Outbox::send(uint8_t lane, transport::PeerId peer, const FrameBytes& header,
                  std::span<const std::byte> payload, uint64_t loan) {
  auto& by_peer = kept_[lane];
  if (peer >= by_peer.size()) by_peer.resize(peer + 1);
  if (by_peer[peer].empty()) {
    const Status status = (*lanes_)[lane]->send(peer, header, payload, loan);
    if (status.ok()) return true;
    if (status.code() != Code::kResourceExhausted) return false;
  }
  by_peer[peer].push_back({header, payload, loan});
  ++waiting_;
  return true;
}

int Outbox::retry(std::vector<uint64_t>* returned) {
  if (waiting_ == 0) return 0;
  int gone = 0;
  const auto lanes = static_cast<uint8_t>(kept_.size());
  for (uint8_t lane = 0; lane < lanes; ++lane) {
    for (transport::PeerId peer = 0; peer < kept_[lane].size(); ++peer) {
      std::deque<Item>& items = kept_[lane][peer];
      while (!items.empty()) {
        const Item& item = items.front();
        const Status status = (*lanes_)[lane]->send(peer, item.header, item.payload, item.loan);
        if (!status.ok() && status.code() != Code::kResourceExhausted) drop(lane, peer, returned);
        if (!status.ok()) break;
        items.pop_front();
        --waiting_;
        ++gone;
      }
    }
  }
  return gone;
}

void Outbox::drop(uint8_t lane, transport::PeerId peer, std::vector<uint64_t>* returned) {
  if (peer >= kept_[lane].size()) return;
  std::deque<Item>& items = kept_[lane][peer];
  for (const Item& item : items) {
    if (item.loan != 0) returned->push_back(item.loan);
  }
  waiting_ -= items.size();
  items.clear();
}

}  // namespace gradring::daemon
