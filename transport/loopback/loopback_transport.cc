#include "transport/loopback/loopback_transport.h"

#include <sys/eventfd.h>

#include <cstring>
#include <deque>
#include <utility>

namespace gradring::transport {
namespace {

// Messages handed over in one progress(), so that a chatty peer cannot keep the owner from its
// timers.
constexpr size_t kLettersPerTurn = 64;
// Likewise of what is told about our own sends.
constexpr int kNoticesPerTurn = 4096;

std::string prefix_of(const Fabric::State& state) {
  return "loopback:" + std::to_string(state.id) + ":";
}

}  // namespace

LoopbackTransport::LoopbackTransport(std::shared_ptr<Fabric::State> state, size_t self)
    : state_(std::move(state)), self_(self), event_fd_(state_->members[self].event_fd) {}

LoopbackTransport::~LoopbackTransport() {
  const std::lock_guard lock(state_->mutex);
  state_->bury(self_, "its transport was closed");
}

std::string LoopbackTransport::address() const {
  const std::lock_guard lock(state_->mutex);
  return prefix_of(*state_) + state_->members[self_].name;
}

Status LoopbackTransport::connect(PeerId peer, const std::string& address) {
  const std::lock_guard lock(state_->mutex);
  const std::string prefix = prefix_of(*state_);
  if (address.size() <= prefix.size() || address.compare(0, prefix.size(), prefix) != 0) {
    return {Code::kInvalidArgument, "the address of peer " + std::to_string(peer) +
                                        " is not one of this loopback fabric; hand over what its "
                                        "address() returned, unchanged"};
  }
  const auto old = pipes_.find(peer);
  if (old != pipes_.end() && state_->pipes.count(old->second) != 0) {
    return {Code::kInvalidArgument,
            "peer " + std::to_string(peer) +
                " is connected already; disconnect it before connecting anew"};
  }
  state_->forget_loss(self_, peer);
  const auto to = state_->find(address.substr(prefix.size()));
  if (!to || !state_->members[self_].alive) {
    // As over a network: nobody there is found out later.
    state_->tell(self_, {peer, 0, false, "nobody answers at its address"});
    pipes_.erase(peer);
    return {};
  }
  const uint64_t id = state_->next_pipe++;
  Pipe& pipe = state_->pipes[id];
  pipe.from = self_;
  pipe.to = *to;
  pipe.peer = peer;
  pipes_[peer] = id;
  return {};
}

void LoopbackTransport::disconnect(PeerId peer) {
  const std::lock_guard lock(state_->mutex);
  state_->forget_loss(self_, peer);
  const auto pipe = pipes_.find(peer);
  if (pipe == pipes_.end()) return;
  state_->close(pipe->second, std::nullopt);
  pipes_.erase(pipe);
}

Status LoopbackTransport::send(PeerId peer, const FrameBytes& header,
                               std::span<const std::byte> payload, uint64_t token) {
  if (!payload.empty() && token == 0) {
    return {Code::kInvalidArgument,
            "a send with a payload needs a token, or its memory never returns"};
  }
  const std::lock_guard lock(state_->mutex);
  const auto id = pipes_.find(peer);
  if (id == pipes_.end()) {
    return {Code::kUnavailable, "peer " + std::to_string(peer) + " is not connected"};
  }
  const auto pipe = state_->pipes.find(id->second);
  if (pipe == state_->pipes.end()) {
    return {Code::kUnavailable, "the connection to peer " + std::to_string(peer) + " broke"};
  }
  if (pipe->second.outstanding.size() >= kLoopbackSendsMax) {
    return {Code::kResourceExhausted, std::to_string(kLoopbackSendsMax) + " sends to peer " +
                                          std::to_string(peer) +
                                          " are under way; wait until some of them have ended"};
  }
  state_->accept(id->second, header, payload, token);
  return {};
}

int LoopbackTransport::progress(Events& events) {
  std::deque<Letter> due;
  {
    const std::lock_guard lock(state_->mutex);
    Member& me = state_->members[self_];
    if (!me.alive) return 0;
    ++me.turn;
    std::deque<Letter> early;
    while (!me.inbox.empty()) {
      Letter letter = std::move(me.inbox.front());
      me.inbox.pop_front();
      const bool now = letter.due < me.turn && due.size() < kLettersPerTurn;
      (now ? due : early).push_back(std::move(letter));
    }
    me.inbox.swap(early);
  }
  int work = tell_notices(events);
  for (Letter& letter : due) {
    hand_over(std::move(letter), events);
    ++work;
  }
  return work;
}

void LoopbackTransport::hand_over(Letter letter, Events& events) {
  const std::span<const std::byte> payload(letter.payload);
  const Events::Landing landing = events.on_header(letter.header, payload.size());
  const bool wanted = payload.empty() || landing.to != nullptr;
  if (wanted) {
    const bool on_host = landing.on_host != nullptr && payload.size() < kStraightBytes;
    std::byte* const to = on_host ? landing.on_host : landing.to;
    if (!payload.empty()) std::memcpy(to, payload.data(), payload.size());
    if (on_host) events.on_landed_on_host(landing.cookie);
    events.on_message(letter.header, landing.cookie);
  }
  const std::lock_guard lock(state_->mutex);
  if (wanted) {
    Counters& counters = state_->members[self_].counters;
    ++counters.messages_received;
    counters.payload_bytes_received += payload.size();
  }
  if (!letter.copy) state_->complete(letter.pipe, letter.serial);
}

int LoopbackTransport::tell_notices(Events& events) {
  // One at a time: a callback may disconnect a peer whose loss is still in the queue.
  for (int told = 0;; ++told) {
    Notice notice;
    {
      const std::lock_guard lock(state_->mutex);
      std::deque<Notice>& notices = state_->members[self_].notices;
      if (notices.empty() || told == kNoticesPerTurn) return told;
      notice = std::move(notices.front());
      notices.pop_front();
    }
    if (notice.lost) {
      events.on_lost(notice.peer, *notice.lost);
    } else {
      events.on_sent(notice.peer, notice.token, notice.ok);
    }
  }
}

bool LoopbackTransport::arm() {
  const std::lock_guard lock(state_->mutex);
  const Member& me = state_->members[self_];
  // What is delayed counts turns of ours, so it keeps us awake.
  if (!me.inbox.empty() || !me.notices.empty()) return false;
  // Every arrival writes under the same mutex: nothing can slip in between the look and the drain.
  eventfd_t drained = 0;
  eventfd_read(event_fd_, &drained);
  return true;
}

Counters LoopbackTransport::counters() const {
  const std::lock_guard lock(state_->mutex);
  return state_->members[self_].counters;
}

}  // namespace gradring::transport
