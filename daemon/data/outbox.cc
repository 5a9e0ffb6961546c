#include "daemon/data/outbox.h"

#include <algorithm>
#include <cstring>

#include "daemon/data/seal.h"

namespace gradring::daemon {

void Outbox::takes_bundles(transport::PeerId peer, size_t bytes) {
  if (peer >= taken_by_.size()) taken_by_.resize(peer + 1);
  taken_by_[peer] = std::min({bytes, bundle_bytes_, kBundleBytesMax});
}

size_t Outbox::room_at(transport::PeerId peer) const {
  return peer < taken_by_.size() ? taken_by_[peer] : 0;
}

Outbox::Line& Outbox::line_to(uint8_t lane, transport::PeerId peer) {
  auto& by_peer = lines_[lane];
  if (peer >= by_peer.size()) by_peer.resize(peer + 1);
  return by_peer[peer];
}

Outbox::Sent Outbox::send(uint8_t lane, transport::PeerId peer, const FrameBytes& header,
                          std::span<const std::byte> payload, uint64_t loan) {
  Line& line = line_to(lane, peer);
  const bool small =
      payload.size() <= kGatheredPayloadMax && 2 * kFrameBytes + payload.size() <= room_at(peer);
  if (small && std::exchange(line.turn, turn_) == turn_) {
    gather(lane, peer, header, payload);
    return Sent::kCopied;
  }
  send_gathered(lane, peer);
  return pass_on(lane, peer, {header, payload, loan}) ? Sent::kLent : Sent::kNowhere;
}

// False when there is no connection.
bool Outbox::pass_on(uint8_t lane, transport::PeerId peer, const Item& item) {
  Line& line = lines_[lane][peer];
  if (line.kept.empty()) {
    const Status status = (*lanes_)[lane]->send(peer, item.header, item.payload, item.loan);
    if (status.ok()) return true;
    if (status.code() != Code::kResourceExhausted) return false;
  }
  line.kept.push_back(item);
  ++waiting_;
  return true;
}

void Outbox::gather(uint8_t lane, transport::PeerId peer, const FrameBytes& header,
                    std::span<const std::byte> payload) {
  Line& line = lines_[lane][peer];
  if (!line.gathered.has_room_for(payload.size(), room_at(peer))) send_gathered(lane, peer);
  if (line.gathered.count == 0) {
    line.memory = memory_.take();
    line.gathered.token = token_in(header);
    gathering_.emplace_back(lane, peer);
  }
  std::byte* const to = memory_.at(line.memory).data() + line.gathered.bytes;
  std::memcpy(to, header.data(), kFrameBytes);
  if (!payload.empty()) std::memcpy(to + kFrameBytes, payload.data(), payload.size());
  line.gathered.add(payload.size());
}

void Outbox::send_gathered(uint8_t lane, transport::PeerId peer) {
  Line& line = lines_[lane][peer];
  const Bundle bundle = std::exchange(line.gathered, {});
  if (bundle.count == 0) return;
  const auto bytes = std::span<const std::byte>(memory_.at(line.memory)).first(bundle.bytes);
  Item item{{}, bytes, line.memory};
  if (bundle.count > 1) {
    item.header = sealed(encode(bundle));
    ++bundles_;
    frames_bundled_ += bundle.count;
  } else {  // no bundle after all
    std::memcpy(item.header.data(), bytes.data(), kFrameBytes);
    item.payload = bytes.subspan(kFrameBytes);
    if (item.payload.empty()) item.loan = 0;
  }
  const bool goes = pass_on(lane, peer, item);
  if (!goes || item.loan == 0) memory_.give_back(line.memory);
}

void Outbox::flush() {
  ++turn_;
  for (const auto& [lane, peer] : gathering_) send_gathered(lane, peer);
  gathering_.clear();
}

int Outbox::retry(std::vector<uint64_t>* returned) {
  if (waiting_ == 0) return 0;
  int gone = 0;
  const auto lanes = static_cast<uint8_t>(lines_.size());
  for (uint8_t lane = 0; lane < lanes; ++lane) {
    for (transport::PeerId peer = 0; peer < lines_[lane].size(); ++peer) {
      std::deque<Item>& items = lines_[lane][peer].kept;
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
  if (peer >= lines_[lane].size()) return;
  Line& line = lines_[lane][peer];
  for (const Item& item : line.kept) {
    if (BundleMemory::is_number(item.loan)) {
      memory_.give_back(item.loan);
    } else if (item.loan != 0) {
      returned->push_back(item.loan);
    }
  }
  waiting_ -= line.kept.size();
  line.kept.clear();
  if (std::exchange(line.gathered, {}).count > 0) memory_.give_back(line.memory);
}

}  // namespace gradring::daemon
