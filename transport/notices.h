#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/transport.h"

namespace gradring::transport {

// What a transport's owner is to hear, and can in progress() alone; and which peers it has lost.
class Notices {
 public:
  void sent(PeerId peer, uint64_t token, bool ok) {
    notices_.push_back({Kind::kSent, ok, peer, token, {}, {}});
  }
  void arrived(const FrameBytes& header, uint64_t cookie) {
    notices_.push_back({Kind::kArrived, true, 0, cookie, header, {}});
  }
  void aborted(uint64_t cookie) { notices_.push_back({Kind::kAborted, false, 0, cookie, {}, {}}); }
  void lost(PeerId peer, const std::string& why) {
    lost_[peer] = why;
    notices_.push_back({Kind::kLost, false, peer, 0, {}, why});
  }
  // It is disconnected: its loss is no news any more.
  void forget_loss(PeerId peer) {
    lost_.erase(peer);
    for (std::vector<Notice>* list : {&notices_, &telling_}) {
      for (Notice& notice : *list) {
        if (notice.kind == Kind::kLost && notice.peer == peer) notice.kind = Kind::kForgotten;
      }
    }
  }

  // Why nothing can be sent to it, where it is not connected.
  Status unconnected(PeerId peer) const {
    const std::string who = "peer " + std::to_string(peer);
    const auto lost = lost_.find(peer);
    if (lost != lost_.end()) return {Code::kUnavailable, "lost " + who + ": " + lost->second};
    return {Code::kUnavailable, who + " is not connected"};
  }

  bool empty() const { return notices_.empty(); }

  // How many. What comes about by that is told next time.
  int tell(Events& events) {
    telling_.swap(notices_);
    for (size_t i = 0; i < telling_.size(); ++i) {
      const Notice& notice = telling_[i];
      switch (notice.kind) {
        case Kind::kSent:
          events.on_sent(notice.peer, notice.number, notice.ok);
          break;
        case Kind::kArrived:
          events.on_message(notice.header, notice.number);
          break;
        case Kind::kAborted:
          events.on_aborted(notice.number);
          break;
        case Kind::kLost:
          events.on_lost(notice.peer, notice.why);
          break;
        case Kind::kForgotten:
          break;
      }
    }
    const int told = static_cast<int>(telling_.size());
    telling_.clear();
    return told;
  }

 private:
  enum class Kind { kSent, kArrived, kAborted, kLost, kForgotten };
  struct Notice {
    Kind kind = Kind::kSent;
    bool ok = false;
    PeerId peer = 0;
    uint64_t number = 0;  // token or cookie
    FrameBytes header{};  // of kArrived
    std::string why;      // of kLost
  };

  std::vector<Notice> notices_, telling_;
  std::unordered_map<PeerId, std::string> lost_;  // and not connected anew: why
};

}  // namespace gradring::transport
