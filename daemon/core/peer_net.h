#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/courier.h"
#include "daemon/core/obituaries.h"
#include "daemon/core/overlay.h"
#include "daemon/core/relay.h"

namespace gradring::core {

// A letter on its way from link to link.
struct Parcel {
  std::string from;
  std::string to;
  std::vector<uint32_t> passed;  // prints of those that had it (Relay::print_of)
  Letter letter;
};

// What PeerNet wants done. Calls come from inside its events and tick(); from inside send() none
// but pass(). They may call send().
class PeerNetActions {
 public:
  virtual ~PeerNetActions() = default;
  // To a link that is up. May be lost when the link is full: a letter goes again.
  virtual void pass(const std::string& link, const Parcel& parcel) = 0;
  virtual void pass(const std::string& link, const std::vector<Notice>& notices) = 0;
  // Of peers without a link.
  virtual void relayed_up(const std::string& peer) = 0;
  virtual void relayed_down(const std::string& peer, bool silent, const std::string& why) = 0;
  virtual void relayed_message(const std::string& peer, const std::string& body) = 0;
};

struct PeerNetOptions {
  std::string self;
  uint64_t boot = 0;
  std::vector<std::string> peers;
  uint32_t links_max = 64;
  // For the denial of a death; adds to the time in which one is known.
  Time patience = 100 * kMillisecond;
  CourierOptions courier;
};

// How this daemon speaks with those that it keeps no connection with: over its links and theirs.
// Who is a link is told here (wants_link); that the links stand, and which of them fall silent, is
// found out elsewhere (failure_detector.h) and told to this. A peer without a link is up while a
// channel to it stands (courier.h) and nobody has told of its death (obituaries.h). Names are those
// that all nodes know one another by. Pure; one thread.
class PeerNet {
 public:
  PeerNet(PeerNetOptions options, PeerNetActions* actions);
  PeerNet(const PeerNet&) = delete;
  PeerNet& operator=(const PeerNet&) = delete;

  // ---- links ----
  // Whether this daemon dials the peer.
  bool wants_link(const std::string& peer) const;
  // The peer has dialled: its configuration is another, or its release knows no relaying.
  void link_wanted(const std::string& peer, Time now);
  void link_up(const std::string& peer, uint64_t boot, bool passes_on, Time now);
  void link_lost(const std::string& peer, bool silent, const std::string& evidence, Time now);
  void on_parcel(const std::string& link, Parcel parcel, Time now);
  void on_notices(const std::string& link, const std::vector<Notice>& notices, Time now);

  // ---- peers without a link ----
  // False: it is not up.
  bool send(const std::string& peer, std::string body, Time now);
  // Breaks the channel: what it says cannot be used.
  void close(const std::string& peer, const std::string& why, Time now);

  void tick(Time now);
  Time next_deadline() const;

  // ---- questions ----
  bool relayed_is_up(const std::string& peer) const;
  const std::string& self() const { return options_.self; }
  const Overlay& overlay() const { return overlay_; }
  uint64_t passed_on() const { return passed_on_; }
  uint64_t dropped() const { return dropped_; }
  uint64_t resent() const;

 private:
  struct Node {
    bool link = false;  // this daemon wants one
    uint64_t boot = 0;  // of the link that is up
    bool passes_on = false;
    std::unique_ptr<Courier> courier;  // where there is no link
    Time due = 0;                      // as it stands in due_
  };
  static std::vector<std::string> all_names(const PeerNetOptions& options);
  Node* node(const std::string& name);
  const Node* node(const std::string& name) const;
  bool is_buried(uint32_t place, const Letter& letter, Time now);
  void hear_of_own_death(uint32_t from, const Letter& letter, Time now);
  void doubt_unreached(Time now);
  void dispatch(uint32_t place, Time now);
  void write(uint32_t to, Letter letter);
  void forward(uint32_t to, Parcel parcel);
  void tell(const std::vector<Notice>& notices, const std::string& except);
  void schedule(uint32_t place);
  Time delay_of(uint32_t place) const;

  const PeerNetOptions options_;
  PeerNetActions* const actions_;
  const Overlay overlay_;
  const uint32_t self_;
  Relay relay_;
  Obituaries obituaries_;
  std::vector<Node> nodes_;                  // by place
  std::set<std::pair<Time, uint32_t>> due_;  // of the couriers
  uint64_t passed_on_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace gradring::core
