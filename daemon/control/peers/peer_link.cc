#include "daemon/control/peers/peer_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/config.h"

namespace gradring::daemon {
namespace {

// A peer that is starting up is found soon, one that is away costs little.
constexpr core::Time kPauseFirst = 100 * core::kMillisecond;
constexpr core::Time kPauseMost = 2 * core::kSecond;

// One that is found each time and then given up costs others more: jobs form with it, and end.
constexpr core::Time kPauseUnheardFirst = core::kSecond;
// Of one that both sides may have given up for the other, which is over when neither knows it.
constexpr core::Time kPauseBriefFirst = 200 * core::kMillisecond;
constexpr core::Time kPauseUnheardMost = 30 * core::kSecond;

// For connecting, letting in and answering the hello. A network that needs longer would not let a
// ring run.
constexpr core::Time kDialTime = 3 * core::kSecond;

// The same where others pass it on, one of whom may have fallen silent just now.
constexpr core::Time kRelayedTime = 10 * core::kSecond;

// Messages that wait for a peer that does not read. It is given up long before, by its silence.
constexpr int kHighWater = 1000;

constexpr int64_t kReplyMax = 64 << 10;

constexpr int kEvents = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                        ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                        ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED;

constexpr const char* kNotAllowed =
    "it does not allow our key: list our public key in its allowed-keys";
constexpr const char* kNoHandshake =
    "the handshake failed: set key on both nodes or on none, and let allowed-keys on both list "
    "the right public keys";
constexpr const char* kClosedMeanwhile = "the connection was closed during the handshake";

}  // namespace

void PeerLink::readdress(std::string address) {
  address_ = std::move(address);
  also_at_.clear();
  way_ = 0;
  pause_ = pause_unheard_ = deadline_ = 0;
  forget_handshakes();
  reason_ = "not tried yet";
}

void PeerLink::forget_handshakes() {
  handshake_fault_.clear();
  cut_in_ = 0;
}

void PeerLink::dial(const Dial& dial, core::Time now) {
  ++number_;
  connection_ = dial.connection;
  token_ = dial.token;
  secure_ = !dial.server_key.empty();
  state_ = State::kDialing;
  broken_ = false;
  deadline_ = now + kDialTime;
  const auto at = parse_host_port(dialled());
  if (!at || is_numeric_address(at->host)) return open(dial, dialled());
  unnamed_ = dial;
  go_on(now);
}

std::string PeerLink::why_unanswered() const {
  const auto at = parse_host_port(dialled());
  return awaits_address() && at ? NameLookups::unanswered(at->host) : "no answer";
}

void PeerLink::go_on(core::Time now) {
  const auto at = parse_host_port(dialled());
  if (!unnamed_ || !at) return;
  const auto found = unnamed_->names->look_up(at->host, unnamed_->names_by_ipv6);
  if (!found) return;
  const Dial dial = *std::exchange(unnamed_, std::nullopt);
  if (!found->fault.empty()) return mark_broken(found->fault);
  deadline_ = now + kDialTime;
  const bool is_ipv6 = found->host.find(':') != std::string::npos;
  open(dial,
       fmt::format("{}{}{}:{}", is_ipv6 ? "[" : "", found->host, is_ipv6 ? "]" : "", at->port));
}

void PeerLink::open(const Dial& dial, const std::string& address) {
  try {
    open_sockets(dial, address);
  } catch (const zmq::error_t& error) {
    close_sockets();
    mark_broken(fmt::format("there is no socket for it here: {}", error.what()));
  }
}

void PeerLink::open_sockets(const Dial& dial, const std::string& address) {
  dealer_ = zmq::socket_t(*dial.context, ZMQ_DEALER);
  dealer_.set(zmq::sockopt::linger, 0);
  dealer_.set(zmq::sockopt::sndhwm, kHighWater);
  dealer_.set(zmq::sockopt::maxmsgsize, kReplyMax);
  dealer_.set(zmq::sockopt::reconnect_ivl, -1);
  // Later than we give up ourselves: to ZeroMQ nobody's answer and a refusal are one.
  constexpr core::Time kLater = 2 * kDialTime;
  dealer_.set(zmq::sockopt::connect_timeout, static_cast<int>(kLater / core::kMillisecond));
  dealer_.set(zmq::sockopt::tcp_keepalive, 1);
  dealer_.set(zmq::sockopt::tcp_keepalive_idle, 10);
  dealer_.set(zmq::sockopt::ipv6, address.front() == '[');
  if (secure_) {
    dealer_.set(zmq::sockopt::curve_serverkey, dial.server_key);
    dealer_.set(zmq::sockopt::curve_publickey, dial.own_public);
    dealer_.set(zmq::sockopt::curve_secretkey, dial.own_secret);
  }
  const std::string name = fmt::format("inproc://peer-{}-{}", id_, number_);
  if (zmq_socket_monitor(dealer_.handle(), name.c_str(), kEvents) != 0) throw zmq::error_t();
  monitor_ = zmq::socket_t(*dial.context, ZMQ_PAIR);
  monitor_.set(zmq::sockopt::linger, 0);
  monitor_.connect(name);
  if (zmq_connect(dealer_.handle(), ("tcp://" + address).c_str()) != 0) {
    mark_broken(zmq_strerror(zmq_errno()));
  }
}

void PeerLink::close_sockets() {
  if (!dealer_) return;
  // The monitor must be told first: it would wait for a reader that is gone.
  zmq_socket_monitor(dealer_.handle(), nullptr, 0);
  monitor_.close();
  dealer_.close();
  waiting_.clear();
}

void PeerLink::begin_relayed(uint64_t connection, uint64_t token, core::Time now) {
  ++number_;
  connection_ = connection;
  token_ = token;
  state_ = State::kDialing;
  broken_ = false;
  deadline_ = now + kRelayedTime;
}

void PeerLink::drop(const std::string& reason, core::Time now, Was was) {
  if (!reason.empty()) reason_ = reason;
  unnamed_.reset();
  close_sockets();
  state_ = State::kWaiting;
  broken_ = false;
  way_ = (way_ + 1) % (also_at_.size() + 1);
  pause_ = pause_ == 0 ? kPauseFirst : std::min(2 * pause_, kPauseMost);
  deadline_ = now + pause_;
  if (was == Was::kNothing) return;
  const core::Time first = was == Was::kBrief ? kPauseBriefFirst : kPauseUnheardFirst;
  pause_unheard_ = std::clamp(2 * pause_unheard_, first, kPauseUnheardMost);
  deadline_ = now + pause_unheard_;
}

std::optional<PeerLink::Happening> PeerLink::next_happening() {
  while (monitor_) {
    zmq::message_t what, where;
    if (!monitor_.recv(what, zmq::recv_flags::dontwait)) return std::nullopt;
    (void)monitor_.recv(where, zmq::recv_flags::dontwait);
    uint16_t event = 0;
    if (what.size() < sizeof event) continue;
    std::memcpy(&event, what.data(), sizeof event);
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      forget_handshakes();
      return Happening::kConnected;
    }
    if ((event & kEvents) == 0) continue;
    note_failure(event);
    return Happening::kBroken;
  }
  return std::nullopt;
}

void PeerLink::note_failure(int event) {
  switch (event) {
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
      handshake_fault_ = kNotAllowed;
      break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
      // A peer that dies in its midst looks the same, and is gone the next time.
      if (!secure_ && (cut_in_ == 0 || cut_in_ == number_)) {
        cut_in_ = number_;
        reason_ = kClosedMeanwhile;
        return;
      }
      [[fallthrough]];
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
      if (handshake_fault_.empty()) handshake_fault_ = kNoHandshake;
      break;
    case ZMQ_EVENT_CLOSED:
      forget_handshakes();
      reason_ = "connection refused or host unreachable";
      return;
    default:
      if (state_ != State::kDialing) {
        reason_ = "the control connection was closed";
        return;
      }
      // A server that does not like our key may just hang up.
      if (secure_ && handshake_fault_.empty()) handshake_fault_ = kNoHandshake;
      if (!secure_) reason_ = kClosedMeanwhile;
      break;
  }
  if (!handshake_fault_.empty()) reason_ = handshake_fault_;
}

std::optional<wire::PeerMessage> PeerLink::next_reply() {
  zmq::message_t body;
  if (!dealer_ || !dealer_.recv(body, zmq::recv_flags::dontwait)) return std::nullopt;
  wire::PeerMessage message;  // stays empty, which is no message, if this does not parse
  message.ParseFromArray(body.data(), static_cast<int>(body.size()));
  return message;
}

void PeerLink::offer(const wire::PeerMessage& message) {
  if (!dealer_ || !send_waiting()) return;
  put(message.SerializeAsString());
}

bool PeerLink::put(const std::string& bytes) {
  return zmq_send(dealer_.handle(), bytes.data(), bytes.size(), ZMQ_DONTWAIT) >= 0;
}

bool PeerLink::send_waiting() {
  while (!waiting_.empty() && put(waiting_.front())) waiting_.pop_front();
  return waiting_.empty();
}

bool PeerLink::send(const wire::PeerMessage& message) {
  if (!dealer_) return false;
  std::string bytes = message.SerializeAsString();
  if (send_waiting() && put(bytes)) return true;
  if (waiting_.size() < size_t{kHighWater}) {
    waiting_.push_back(std::move(bytes));
    return true;
  }
  mark_broken(fmt::format("does not read: {} messages wait for it", 2 * kHighWater));
  return false;
}

}  // namespace gradring::daemon
