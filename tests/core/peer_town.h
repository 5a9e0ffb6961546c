#pragma once

// Many daemons in one process that speak over links and, where there is none, over one another
// (daemon/core/peer_net.h). Virtual time, a millisecond for each link; what is lost or doubled is
// drawn from a seed. Links are watched by heartbeats as daemon/control does it.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/failure_detector.h"
#include "daemon/core/peer_net.h"
#include "daemon/core/random.h"

namespace gradring::core {

class PeerTown {
 public:
  struct Options {
    uint32_t links_max = 64;
    uint64_t seed = 1;
    FailureDetector::Options watch;
    uint32_t lost = 0;     // parcels, per cent
    uint32_t doubled = 0;  // likewise
  };
  struct Loss {
    uint32_t peer = 0;
    bool silent = false;
    std::string why;
    Time at = 0;
  };
  struct House;

  PeerTown(uint32_t count, const Options& options);
  ~PeerTown();

  void run(Time span);
  Time now = 100 * kSecond;

  // ---- what happens to nodes and links ----
  // Its connections close at once, or it falls silent.
  void kill(uint32_t place, bool silent = false);
  void start(uint32_t place);  // another life
  void cut(uint32_t a, uint32_t b) { cut_.insert(std::minmax(a, b)); }
  void mend(uint32_t a, uint32_t b) { cut_.erase(std::minmax(a, b)); }
  void cut_off(uint32_t place);
  void mend_all() { cut_.clear(); }
  // The connection closes at both ends, and is made anew after a moment.
  void close(uint32_t a, uint32_t b);

  // ---- what nodes do and see ----
  bool send(uint32_t from, uint32_t to, const std::string& body);
  bool up(uint32_t at, uint32_t peer) const;
  bool all_up() const;  // of all that live, each sees each
  uint32_t count() const { return overlay_.count(); }
  const Overlay& overlay() const { return overlay_; }
  bool alive(uint32_t place) const;
  PeerNet& net(uint32_t place);
  const std::vector<Loss>& losses(uint32_t at) const;
  const std::vector<std::pair<uint32_t, std::string>>& got(uint32_t at) const;

  struct Sent {
    uint64_t heartbeats = 0, parcels = 0, notices = 0, direct = 0;
  };
  const Sent& sent(uint32_t place) const;
  void forget_sent();

  // Instead of losses() and got().
  std::function<void(uint32_t at, uint32_t peer)> on_up;
  std::function<void(uint32_t at, const Loss&)> on_down;
  std::function<void(uint32_t at, uint32_t from, const std::string& body)> on_message;

 private:
  struct OnTheWay {
    Time at = 0;
    uint32_t from = 0, to = 0;
    uint64_t connection = 0;
    enum class What : uint8_t { kHeartbeat, kParcel, kNotices, kDirect, kClosed } what{};
    std::shared_ptr<const Parcel> parcel;
    std::vector<Notice> notices;
    std::string body;
  };
  void post(OnTheWay message);
  void arrive(const OnTheWay& message);
  void tick_links(uint32_t place);
  void connect(uint32_t a, uint32_t b);
  void lose(uint32_t at, uint32_t link, bool silent, const std::string& why);
  void up_at(uint32_t at, uint32_t peer);
  void down_at(uint32_t at, const Loss& loss);
  bool passes(uint32_t a, uint32_t b) const;

  const Options options_;
  const Overlay overlay_;
  Random random_;
  std::vector<std::unique_ptr<House>> houses_;
  std::set<std::pair<uint32_t, uint32_t>> cut_;
  std::deque<OnTheWay> on_the_way_;  // by time of arrival: all take as long
  uint64_t connections_ = 0;
  uint64_t boots_ = 5000;
};

}  // namespace gradring::core
