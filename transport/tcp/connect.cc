// Whom we connect to, and how that ends.
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "transport/address.h"
#include "transport/tcp/body.h"
#include "transport/tcp/constants.h"

namespace gradring::transport {
namespace {

// Of an address that says nothing, as behind a firewall or in a network that only has the same
// numbers as ours, the kernel thinks for minutes. A handshake takes a millisecond, and one whose
// first packet was lost is begun once more when its turn comes again.
constexpr timespec kRoundOfPatience{0, 250'000'000};

}  // namespace

Status TcpTransport::connect(PeerId peer, const std::string& sealed) {
  const std::string who = "peer " + std::to_string(peer);
  if (link_to_.contains(peer)) {
    return {Code::kInvalidArgument,
            who + " is connected already; disconnect it before connecting anew"};
  }
  const OpenedAddress opened = open_address(name(), sealed);
  const auto address = decode_address(opened.raw);
  if (!address) {
    return {Code::kInvalidArgument,
            "the data address of " + who + " cannot be used: " +
                (opened.raw.empty() ? opened.refusal : "it is not one of this transport")};
  }
  notices_.forget_loss(peer);
  lost_.erase(peer);
  const Number number = next_number_++;
  const bool is_another = address->identity != me_;
  const std::vector<Endpoint> theirs =
      is_another ? others_of(address->endpoints, own_) : address->endpoints;
  auto out = std::make_unique<Outgoing>(address->identity, me_,
                                        ways_between(own_, theirs, options_.devices.size() == 1));
  if (Status status = open(number, out.get()); !status.ok()) return status;
  const bool has_other_ways = out->has_other_ways();
  links_.emplace(number, Link{peer, std::move(out)});
  link_to_[peer] = number;
  if (has_other_ways) be_patient();
  return {};
}

Status TcpTransport::open(Number number, Outgoing* out) {
  if (Status status = out->open(); !status.ok()) return status;
  // At its edges: it is mostly writable, and of interest when it becomes so.
  return watch(out->fd(), number, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}

void TcpTransport::be_patient() {
  if (patience_) return;
  patience_ = Socket(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!patience_) return;  // the owner gives up in the end
  const itimerspec rounds{kRoundOfPatience, kRoundOfPatience};
  timerfd_settime(patience_.fd(), 0, &rounds, nullptr);
  if (!watch(patience_.fd(), kPatience, EPOLLIN).ok()) patience_ = Socket();
}

void TcpTransport::try_other_ways() {
  uint64_t rounds = 0;
  [[maybe_unused]] const auto got = read(patience_.fd(), &rounds, sizeof rounds);
  std::vector<Number> silent;
  bool any = false;
  for (auto& [number, link] : links_) {
    if (!link.out->has_other_ways()) continue;
    any = true;
    if (std::exchange(link.waited, !link.waited)) silent.push_back(number);
  }
  if (!any) patience_ = Socket();
  for (const Number number : silent) {
    Outgoing* const out = links_.at(number).out.get();
    out->go_on_round();
    if (Status status = open(number, out); !status.ok()) lose(number, status.message());
  }
}

void TcpTransport::on_news(Number number, bool writable) {
  Outgoing* const out = links_.at(number).out.get();
  const bool was_open = out->is_open();
  Status status = out->look(writable);
  // The next of its addresses.
  if (!status.ok() && !was_open) {
    if (const Status next = open(number, out); next.ok()) return;
  }
  if (!status.ok()) return lose(number, status.message());
  if (out->is_open() && links_.at(number).apart == 0) give(number);
}

void TcpTransport::lose(Number number, const std::string& why) {
  const PeerId peer = links_.at(number).peer;
  lost_[peer] = links_.at(number).out->to();
  end_link(number);  // first, so that the owner hears of its sends before the loss
  notices_.lost(peer, why);
}

void TcpTransport::end_link(Number number) {
  const auto it = links_.find(number);
  const Link& link = it->second;
  if (link.apart != 0) {
    sent_.clear();
    sender_->take_back(number, &sent_);
    end_sends(link.peer, sent_, true);
  }
  end_sends(link.peer, link.out->give_up(), false);
  abort_from(link.out->to());
  link_to_.erase(link.peer);
  links_.erase(it);
}

void TcpTransport::disconnect(PeerId peer) {
  notices_.forget_loss(peer);
  const auto it = link_to_.find(peer);
  if (it != link_to_.end()) end_link(it->second);
  // It can send to us although we could not send to it.
  if (const auto lost = lost_.find(peer); lost != lost_.end()) {
    abort_from(lost->second);
    lost_.erase(lost);
  }
}

}  // namespace gradring::transport
