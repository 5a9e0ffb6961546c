#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>
#include <zmq.hpp>

#include "daemon/config.h"
#include "daemon/control/door/zap.h"
#include "daemon/control/peers/lane_paths.h"
#include "daemon/control/peers/name_lookups.h"
#include "daemon/control/peers/peer_link.h"
#include "daemon/core/failure_detector.h"
#include "daemon/core/peer_lanes.h"
#include "daemon/core/peer_net.h"
#include "daemon/data/messages.h"
#include "proto/status.h"

namespace gradring::daemon {

// What Peers tells. Calls may come from inside do_work() and tick() only, never from inside send().
class PeerEvents {
 public:
  virtual ~PeerEvents() = default;
  // Both directions stand, and the data thread has been told to connect.
  virtual void peer_up(const std::string& node) = 0;
  virtual void peer_lost(const std::string& node, Cause cause, const std::string& evidence) = 0;
  // The same of one that ended because somebody wanted it to.
  virtual void peer_stopped(const std::string& node) = 0;
  // Its connection closed, and it may come back with all it knew: one of these three follows.
  virtual void peer_away(const std::string& node, const std::string& evidence) = 0;
  // It goes on, but what was under way on this lane is lost. `why` is for people.
  virtual void lane_lost(const std::string& node, const std::string& why) = 0;
  // Not heard of for `suspect`, or heard of again.
  virtual void peer_suspect(const std::string& node, bool suspected) = 0;
  // Anything but hello and heartbeat, in the order in which it was sent, while the peer is up.
  virtual void peer_message(const std::string& node, const wire::PeerMessage& message) = 0;
};

// What a hello says of this daemon.
struct OwnIdentity {
  std::string node;
  uint64_t boot_id = 0;
  std::string transport;                    // name to compare: body, major and minor version
  std::vector<std::string> data_addresses;  // of the data transports, one a lane
  std::vector<std::string> devices;         // of the lanes, for people
  std::vector<std::string> lane_hosts;      // their addresses; empty: of RDMA
  uint64_t slice_bytes = 0;
  uint32_t slots = 0;
};

core::FailureDetector::Options watch_options(const Config& config);

// Of a peer that ended because somebody wanted it to.
inline constexpr const char* kPeerWasStopped = "its daemon was stopped, or drained";

// The route of whoever speaks over others, followed by its address; no connection's own is like it.
inline constexpr const char* kRelayedRoute = "/relayed/";

// The connections to the other daemons. Each peer is two channels: we speak on our DEALER to its
// address and hear on our ROUTER what it sends from its own DEALER. It is up when we were welcomed
// and its hello was heard, both by the same life (boot id) of the same node. With more peers than
// control-links there are no connections to some of them, and their two channels are those of
// core/peer_net.h. Control thread only.
class Peers : private core::PeerNetActions {
 public:
  Peers(zmq::context_t* context, const Config& config, const OwnIdentity& self,
        CommandBox* commands, PeerEvents* events);

  // Binds `listen`; an error says what to change.
  Status open();
  // What the hello says of how long this daemon lives; before open().
  void set_life(uint64_t life, core::Time restart_grace) {
    life_ = life;
    restart_grace_ = restart_grace;
  }
  // A peer of the last life of this daemon: peer_up or, by then, peer_lost will be told.
  void expect(const std::string& node, core::Time until) { away_[node] = {0, until}; }
  // Who has another key from now on, or none, is lost with the next turn.
  void set_allowed_keys(std::vector<AllowedKey> keys);

  // The sockets to poll; do_work() wants to know which of them are readable.
  void add_poll_items(std::vector<zmq_pollitem_t>* items);
  int do_work(std::span<const zmq_pollitem_t> items, core::Time now);
  // Every Config::pulse(): heartbeats, and who has been silent.
  void tick(core::Time now);
  // When do_work() must be called at the latest, readable or not.
  core::Time next_deadline() const;

  // All that discover names by now, this node's own address among it or not. Who is no longer
  // named is let go once it is not up.
  void found(const std::vector<std::string>& addresses);

  // ---- from the data thread ----
  void on_pulse(const Pulse& pulse, core::Time now);
  void on_data_lost(const PeerDataLost& lost, core::Time now);

  // ---- from the ports of our lanes ----
  // Of a lane, and why. Where others go on it is given up for all peers at once, and they are told;
  // it is tried again once the port is active.
  void port_down(uint8_t lane, const std::string& why, core::Time now);
  void port_active(uint8_t lane);

  // ---- for jobs ----
  // A member of a job: slices will go there. Before the data thread hears of the job.
  void need_data(const std::string& node);
  // It has made its side ready as well: from now on its silence counts.
  void watch_data(const std::string& node);

  // False when the node is not up. A message that cannot be queued breaks the connection.
  bool send(const std::string& node, wire::PeerMessage message);

  // Lanes that carry slices to each node that is up.
  std::unordered_map<std::string, uint32_t> lanes() const;
  // "10.0.0.2:7300 (connection refused)", separated by commas; empty when all are up.
  std::string unreachable() const;
  wire::PeersReport report(core::Time now) const;
  uint32_t count_up() const;  // without those that are suspect
  uint32_t count() const;
  uint32_t count_stopped() const;
  // Of the data thread, in the order of report().
  std::vector<const PeerTraffic*> traffic() const;
  bool secure() const { return keys_.has_value(); }
  uint64_t malformed() const { return malformed_; }

  // Tells all that this daemon is about to end, and that nothing is wrong with it. Who hears of
  // that over others does so in time: word of a death is believed after a moment
  // (core/obituaries.h).
  void say_farewell();
  // Somebody is up and does not end itself, so that the farewell matters to it.
  bool is_missed() const;
  // Lets what is queued still go out when the sockets close.
  void linger(int milliseconds);

 private:
  struct Peer {
    explicit Peer(PeerLink l) : link(std::move(l)) {}
    PeerLink link;
    bool configured = true;  // by `peer`; else discover found it
    bool listed = true;      // or does no longer: is dialled
    std::string node;        // who answered last at this address; empty: nobody yet
    uint64_t boot_id = 0;    // of the one that welcomed us
    std::string version;
    bool refused = false;  // by either side: a person must change something
    std::string spare_of;  // the node that was met here, and was connected by another address
    bool up = false;
    core::Time up_since = 0;
    core::Time heard = 0;   // last, on the control connection
    uint64_t progress = 0;  // of its data thread, as its heartbeats say
    core::Time progressed = 0;
    std::optional<core::PeerLanes> lanes;  // while it is up
    std::optional<ConnectPeer> data;       // while it is up, until a job needs it
    bool data_watched = false;
    bool gave_us_up = false;          // as it says
    bool ends = false;                // as it says; until it is up again
    std::optional<std::string> lost;  // data connection broke, and why; handled in do_work()
    std::string told;                 // to the log, of why it is not connected
    PeerTraffic traffic;
    std::vector<std::string> lane_hosts;  // its own, while it is up
  };
  // A hello that was welcomed: the direction from the peer to us.
  struct Greeting {
    std::string routing_id;
    uint64_t boot_id = 0;
    uint64_t connection = 0;
    std::vector<std::string> also_at;
    std::vector<std::string> data_addresses;
    std::vector<std::string> lane_hosts;
    uint64_t data_token = 0;
    uint64_t bundle_bytes = 0;
    bool probes = false;
    std::string version;
    uint64_t life = 0;
    core::Time restart_grace = 0;
    bool relays = false;
    // What it sent before our own direction was welcomed: its daemon was a moment faster.
    std::deque<wire::PeerMessage> early;
    size_t early_bytes = 0;
  };

  // Whoever is waited for. `life` 0: whatever comes.
  struct Away {
    uint64_t life = 0;
    core::Time until = 0;
    uint64_t doubtful_lanes = 0;  // when it was heard last
  };

  // peers.cc
  Status bind(const char* option, const std::string& address);
  int hear(core::Time now);
  int watch_links(std::span<const zmq_pollitem_t> items, core::Time now);
  int drop_broken(core::Time now);
  int dial_waiting(core::Time now);
  void shut_out(Peer& peer, core::Time now);
  void dispatch(Peer& peer, const wire::PeerMessage& message, core::Time now);
  std::string user_of(zmq::message_t& message) const;

  // What came on a connection, or over others, that names who said hello on it.
  void take(const std::string& routing_id, wire::PeerMessage message, core::Time now);
  void keep_early(const std::string& node, wire::PeerMessage message);

  // peers_found.cc
  bool is_own(const std::string& address) const;
  bool is_spare(const Peer& peer) const;
  bool is_awaited(const Peer& peer) const;
  // Who answers, by whatever address it is connected already. Null: it is not.
  const Peer* met_elsewhere(const Peer& peer, const wire::HelloReply& answer) const;
  void set_aside(Peer& peer, const Peer& same);
  bool is_shown(const Peer& peer) const;
  bool is_stopped(const Peer& peer) const { return !peer.up && !peer.refused && peer.ends; }
  void add(const std::string& address);
  void retire();

  // peers_relayed.cc
  void open_net();
  bool is_relayed(const Peer& peer) const;
  // Of one that is up: whether each plane that is watched has been heard within `suspect`.
  bool hears_control(const Peer& peer) const;
  bool hears_data(const Peer& peer) const;
  Peer* by_address(const std::string& address);
  void want_link(const wire::Hello& hello, core::Time now);
  void greet_relayed(core::Time now);
  void say(Peer& peer, const wire::PeerMessage& message);
  void connect_data(Peer& peer);
  bool take_relay(const Peer& peer, const wire::PeerMessage& message, core::Time now);
  void pass(const std::string& link, const core::Parcel& parcel) override;
  void pass(const std::string& link, const std::vector<core::Notice>& notices) override;
  void relayed_up(const std::string& address) override;
  void relayed_down(const std::string& address, bool silent, const std::string& why) override;
  void relayed_message(const std::string& address, const std::string& body) override;

  // peer_health.cc
  void watch(core::FailureDetector& detector, const char* plane, core::Time now);
  void measure_paths(core::Time now);
  int settle_lanes();
  void hold_ports(Peer& peer, core::Time now);
  void say_heartbeat(Peer& peer);
  std::string silence_of(const Peer& peer, const char* plane, core::Time silent,
                         core::Time now) const;
  bool is_unheard(const Peer& peer, core::Time now) const;
  PeerLink::Was how_it_stood(const Peer& peer, bool gave_us_up, core::Time now) const;
  std::string doubt_of(const Peer& peer, core::Time now) const;
  core::Time slept_until_given_up(const Peer& peer, bool gave_us_up, core::Time now) const;
  void look_for_other_ways(core::Time now);
  std::string why_absent(const std::string& node) const;
  void give_up_absent(core::Time now);

  // greet.cc
  void say_hello(Peer& peer);
  void on_reply(Peer& peer, const wire::PeerMessage& message, core::Time now);
  void on_hello(const std::string& routing_id, const std::string& user,
                const wire::PeerMessage& message, core::Time now);
  std::string objection_to(const wire::Hello& hello, const std::string& user,
                           uint32_t protocol) const;
  void reply(const std::string& routing_id, bool welcome, const std::string& reason,
             uint64_t connection, uint64_t gave_up = 0);
  void refuse(Peer& peer, const std::string& why);

  // peers_standing.cc
  void forget_greeting(const std::string& node);
  void try_up(const std::string& node, core::Time now);
  // Whether it lives, and only this way to it is broken.
  bool may_come_round(const Peer& peer, core::Time now) const;
  void lose(Peer& peer, Cause cause, const std::string& evidence, core::Time now,
            bool comes_round = false);

  // Of several at whose addresses it was met, the one in use.
  Peer* by_node(const std::string& node);
  const Peer* by_node(const std::string& node) const;
  void add_lanes(const Peer& peer, core::Time now, wire::PeerReport* report) const;
  wire::PeerReport report_of(const Peer& peer, core::Time now) const;

  zmq::context_t* const context_;
  const Config config_;
  const OwnIdentity self_;
  CommandBox* const commands_;
  PeerEvents* const events_;

  std::optional<KeyPair> own_key_;
  std::optional<KeyGuard> keys_;  // before router_: it must be there when that is bound
  NameLookups names_;
  zmq::socket_t router_;
  std::deque<Peer> peers_;                                 // by PeerId
  std::map<std::string, Greeting> greetings_;              // by node
  std::unordered_map<std::string, std::string> greeters_;  // node by routing id
  core::FailureDetector control_watch_;
  core::FailureDetector data_watch_;
  std::map<std::string, Away> away_;           // by node
  std::optional<core::PeerNet> net_;           // when there are more peers than links
  std::set<std::string> own_addresses_;        // found, and at the other end was this daemon
  std::map<uint8_t, std::string> ports_down_;  // by lane: why
  std::set<std::string> needed_;               // nodes that some job had as members
  core::Time now_ = 0;                         // of the turn, for what the net tells
  uint64_t life_ = 0;
  core::Time restart_grace_ = 0;
  core::Time counted_at_ = 0;  // the peers' traffic
  uint64_t measured_at_ = 0;   // bytes sent in all when paths_ was fed last
  LanePaths paths_;            // by PeerId
  uint64_t own_progress_ = 0;
  bool ends_ = false;  // this daemon
  uint64_t heartbeats_ = 0;
  uint64_t malformed_ = 0;
};

}  // namespace gradring::daemon
