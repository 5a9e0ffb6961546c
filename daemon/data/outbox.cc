#include "daemon/data/outbox.h"

namespace gradring::daemon {

bool Outbox::send(transport::PeerId peer, const FrameBytes& header,
                  std::span<const std::byte> payload, uint64_t loan) {
  if (peer >= kept_.size()) kept_.resize(peer + 1);
  if (kept_[peer].empty()) {
    const Status status = transport_->send(peer, header, payload, loan);
    if (status.ok()) return true;
    if (status.code() != Code::kResourceExhausted) return false;
  }
  kept_[peer].push_back({header, payload, loan});
  ++waiting_;
  return true;
}

int Outbox::retry(std::vector<uint64_t>* returned) {
  if (waiting_ == 0) return 0;
  int gone = 0;
  for (transport::PeerId peer = 0; peer < kept_.size(); ++peer) {
    std::deque<Item>& items = kept_[peer];
    while (!items.empty()) {
      const Item& item = items.front();
      const Status status = transport_->send(peer, item.header, item.payload, item.loan);
      if (!status.ok() && status.code() != Code::kResourceExhausted) drop(peer, returned);
      if (!status.ok()) break;
      items.pop_front();
      --waiting_;
      ++gone;
    }
  }
  return gone;
}

void Outbox::drop(transport::PeerId peer, std::vector<uint64_t>* returned) {
  if (peer >= kept_.size()) return;
  for (const Item& item : kept_[peer]) {
    if (item.loan != 0) returned->push_back(item.loan);
  }
  waiting_ -= kept_[peer].size();
  kept_[peer].clear();
}

}  // namespace gradring::daemon
