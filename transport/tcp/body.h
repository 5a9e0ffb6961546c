#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/notices.h"
#include "transport/tcp/endpoints.h"
#include "transport/tcp/incoming.h"
#include "transport/tcp/outgoing.h"
#include "transport/tcp/sender.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/transport.h"

namespace gradring::transport {

// One thread drives it; the methods are in body.cc (the turn), listen.cc (who connects to us) and
// connect.cc (whom we connect to), send.cc (what we send them).
class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(TcpOptions options) : options_(std::move(options)) {}
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;
  // The last step of making one.
  Status listen();

  std::string name() const override;
  std::string devices() const override;
  std::string devices_reason() const override { return options_.devices_reason; }
  std::string address() const override;
  Status connect(PeerId peer, const std::string& sealed) override;
  void disconnect(PeerId peer) override;
  Status send(PeerId peer, const FrameBytes& header, std::span<const std::byte> payload,
              uint64_t token) override;
  int progress(Events& events) override;
  int event_fd() const override { return epoll_.fd(); }
  bool arm() override { return notices_.empty() && crowded_.empty(); }
  Counters counters() const override { return counters_; }
  size_t preferred_payload_bytes() const override;

 private:
  // What the kernel tells of by this number: never used again, so that news of what is gone by now
  // is nobody's.
  using Number = Sender::Number;

  static constexpr Number kNewsOfSender = 0, kPatience = 1;  // others are from 2 on

  struct Link {
    PeerId peer = 0;
    std::unique_ptr<Outgoing> out;
    bool waited = false;  // through a whole round of patience, and it is not open
    size_t apart = 0;     // messages of it that the sender has; with any, `out` is the sender's

    size_t waiting() const { return apart != 0 ? apart : out->waiting(); }
  };

  Status listen_at(Endpoint endpoint);
  Status watch(int fd, Number number, uint32_t what);
  bool accept_some(int listener, Events* events);
  int accept_rest(Events* events);
  void make_room(Events* events);
  int take(Number number, Events* events);
  Status open(Number number, Outgoing* out);
  void be_patient();
  void try_other_ways();
  void on_news(Number number, bool writable);
  bool goes_apart(const Link& link, size_t payload_bytes);
  void give(Number number);
  int hear_of_sent();
  void lose(Number number, const std::string& why);
  void end_link(Number number);
  void abort_from(const Identity& from);
  void end_sends(PeerId peer, std::span<const Outgoing::Sent> sends, bool ok);

  const TcpOptions options_;
  Identity me_{};
  std::vector<Endpoint> own_;  // with the ports at which we listen
  Counters counters_;
  Socket epoll_;
  Number next_number_ = 2;
  std::unordered_map<Number, Socket> listeners_;
  std::set<Number> crowded_;             // listeners at which more may wait than a turn accepts
  std::map<Number, Incoming> incoming_;  // the oldest first
  std::unordered_map<Number, Link> links_;
  Socket patience_;  // a timer, while one of them is not open that has other ways
  std::unordered_map<PeerId, Number> link_to_;
  std::unordered_map<PeerId, Identity> lost_;  // who they were, until they are connected anew
  // Memory for a call.
  std::vector<Outgoing::Sent> sent_;
  std::vector<Sender::News> heard_;
  Notices notices_;
  std::optional<Sender> sender_;  // from the first send on that goes apart; ends before the links
  bool no_sender_ = false;        // the system had none
};

}  // namespace gradring::transport
