#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "daemon/control/peers/name_lookups.h"
#include "daemon/core/time.h"
#include "daemon/data/messages.h"
#include "proto/wire.h"

namespace gradring::daemon {

inline constexpr int kSocketsOfLink = 3;  // its two, and the other end of its monitor

// Our own way to one configured peer: a DEALER that dials its address, or another that the peer has
// told us, in turn, when the last one did not do. libzmq's reconnecting is
// off, since it would keep a queue across the peer's death; a broken connection is dropped with all
// it holds, and dialled anew after a pause.
//
//   from       event                              to
//   kWaiting   the pause is over                  kDialing
//   kDialing   connected and, with CURVE, let in  kGreeting   Hello sent
//   kGreeting  HelloReply welcomes                kWelcomed
//   any        broken, refused or too slow        kWaiting
class PeerLink {
 public:
  enum class State : uint8_t { kWaiting, kDialing, kGreeting, kWelcomed };

  PeerLink(PeerId id, std::string address) : id_(id), address_(std::move(address)) {}

  // To another peer, of which nothing is known yet; not while it is open().
  void readdress(std::string address);
  // Where else it can be dialled.
  void set_also_at(std::vector<std::string> addresses) { also_at_ = std::move(addresses); }
  bool has_other_ways() const { return !also_at_.empty(); }

  // What the connection to be made needs.
  struct Dial {
    zmq::context_t* context = nullptr;
    std::string own_public, own_secret, server_key;  // empty: no CURVE
    bool names_by_ipv6 = false;  // a name is dialled at its address of IPv6, if it has one
    NameLookups* names = nullptr;
    uint64_t connection = 0;  // random; names this connection in the hello
    uint64_t token = 0;       // random; we expect it in the peer's frames
  };
  void dial(const Dial& dial, core::Time now);
  // Where dial() waits for the address of a name: goes on once that is known.
  void go_on(core::Time now);
  bool awaits_address() const { return unnamed_.has_value(); }
  std::string why_unanswered() const;
  // There is no connection of our own: others pass on what is said (core/peer_net.h). Goes on from
  // kDialing, and everything but send() is as with a connection.
  void begin_relayed(uint64_t connection, uint64_t token, core::Time now);
  // How a connection was that is dropped. Where it was up and ended at once, or nothing came by the
  // data network, which is for a person to mend, the next pause is longer each time, until heard().
  enum class Was : uint8_t { kNothing, kBrief, kUnheard };
  // Closes the sockets and what they hold. `reason` is for people.
  void drop(const std::string& reason, core::Time now, Was was = Was::kNothing);
  void heard() { pause_unheard_ = 0; }

  // The last handshake failed, so that a person must look at the keys; the reason says how.
  bool handshake_refused() const { return !handshake_fault_.empty(); }

  // ---- what has happened; each returns one event and is called until it returns nothing ----
  enum class Happening : uint8_t { kConnected, kBroken };
  std::optional<Happening> next_happening();
  std::optional<wire::PeerMessage> next_reply();

  // False: the link is down, or now marked as broken since the peer does not read.
  bool send(const wire::PeerMessage& message);
  // The same, but what does not fit is lost and breaks nothing.
  void offer(const wire::PeerMessage& message);

  void linger(int milliseconds) { dealer_.set(zmq::sockopt::linger, milliseconds); }

  PeerId id() const { return id_; }
  const std::string& address() const { return address_; }  // as configured
  const std::string& dialled() const { return way_ == 0 ? address_ : also_at_[way_ - 1]; }
  bool open() const { return state_ != State::kWaiting; }
  bool has_socket() const { return dealer_.handle() != nullptr; }
  void* socket() { return dealer_.handle(); }
  void* monitor() { return monitor_.handle(); }
  uint64_t number() const { return number_; }  // counts the dials
  uint64_t connection() const { return connection_; }
  uint64_t token() const { return token_; }
  core::Time deadline() const { return deadline_; }  // of dialling and greeting, or of the pause
  const std::string& reason() const { return reason_; }

  State state() const { return state_; }
  void greeted() { state_ = State::kGreeting; }
  void welcomed() {
    state_ = State::kWelcomed;
    pause_ = 0;
  }
  // To be dropped as soon as that is safe: nobody may be in the middle of using it.
  void mark_broken(const std::string& reason) {
    broken_ = true;
    reason_ = reason;
  }
  bool broken() const { return broken_; }

 private:
  void open(const Dial& dial, const std::string& address);
  void open_sockets(const Dial& dial, const std::string& address);  // throws zmq::error_t
  void close_sockets();
  void note_failure(int event);
  void forget_handshakes();
  bool put(const std::string& bytes);
  bool send_waiting();

  const PeerId id_;
  std::string address_;
  std::vector<std::string> also_at_;
  size_t way_ = 0;               // dialled last; 0: the address, else one of the others
  std::optional<Dial> unnamed_;  // waits for an address
  zmq::socket_t dealer_;
  zmq::socket_t monitor_;
  // What the socket had no room for: mostly for what was offered, of which nobody would say that
  // the peer does not read.
  std::deque<std::string> waiting_;
  State state_ = State::kWaiting;
  bool broken_ = false;
  bool secure_ = false;
  // What libzmq said of the handshake. It says more than one thing of the same failure, in any
  // order, and sometimes only that the connection was closed; the best it has said is kept.
  std::string handshake_fault_;
  uint64_t cut_in_ = 0;  // the first dial whose handshake just ended; 0: none since one went well
  uint64_t number_ = 0;
  uint64_t connection_ = 0;
  uint64_t token_ = 0;
  core::Time pause_ = 0;
  core::Time pause_unheard_ = 0;
  core::Time deadline_ = 0;
  std::string reason_ = "not tried yet";
};

}  // namespace gradring::daemon
