#include "transport/loopback/state.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>

namespace gradring::transport {
namespace {

uint64_t next_fabric_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

bool happens(std::mt19937_64& dice, double chance) {
  return std::uniform_real_distribution<double>(0, 1)(dice) < chance;
}

}  // namespace

Fabric::State::State(uint64_t fabric_seed) : seed(fabric_seed), id(next_fabric_id()) {}

Fabric::State::~State() {
  for (const Member& member : members) ::close(member.event_fd);
}

std::optional<size_t> Fabric::State::find(const std::string& name) const {
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].alive && members[i].name == name) return i;
  }
  return std::nullopt;
}

Fabric::State::Weather& Fabric::State::weather_of(const std::string& from, const std::string& to) {
  auto [it, fresh] = weather.try_emplace({from, to});
  if (fresh) it->second.dice.seed(seed ^ std::hash<std::string>()(from + '>' + to));
  return it->second;
}

void Fabric::State::accept(uint64_t pipe_id, const FrameBytes& header,
                           std::span<const std::byte> payload, uint64_t token) {
  Pipe& pipe = pipes.at(pipe_id);
  const Member& sender = members[pipe.from];
  const Member& receiver = members[pipe.to];
  Weather& sky = weather_of(sender.name, receiver.name);
  const LinkFaults faults = sky.faults;
  const size_t to = pipe.to;

  Letter letter;
  letter.pipe = pipe_id;
  letter.serial = pipe.sends++;
  letter.header = header;
  letter.payload.assign(payload.begin(), payload.end());
  pipe.outstanding[letter.serial] = {token, payload.size()};

  // Every die is cast for every message, so that one fault does not change the others' luck.
  const bool twice = happens(sky.dice, faults.duplicate);
  const bool late = happens(sky.dice, faults.reorder);
  const bool damaged = happens(sky.dice, faults.corrupt);
  const uint64_t where = sky.dice();

  letter.due = std::max(receiver.turn + faults.delay_turns, pipe.last_due);
  pipe.last_due = letter.due;
  if (late) letter.due += kReorderTurns;
  if (damaged && !letter.payload.empty()) {
    letter.payload[where % letter.payload.size()] ^= std::byte{0x40};
  }
  if (!faults.black_hole && !stopped.count(sender.name) && !stopped.count(receiver.name)) {
    if (twice) {
      Letter copy = letter;
      copy.copy = true;
      deliver(to, std::move(copy));
    }
    deliver(to, std::move(letter));
  }
  if (faults.break_after != LinkFaults::kNever && ++sky.accepted >= faults.break_after) {
    sky.faults.break_after = LinkFaults::kNever;
    const size_t from = pipe.from;
    close_between(from, to, "injected break");
    close_between(to, from, "injected break");
  }
}

void Fabric::State::deliver(size_t to, Letter letter) {
  members[to].inbox.push_back(std::move(letter));
  wake(to);
}

void Fabric::State::complete(uint64_t pipe_id, uint64_t serial) {
  const auto pipe = pipes.find(pipe_id);
  if (pipe == pipes.end()) return;  // closed meanwhile: the send has been reported as failed
  const auto send = pipe->second.outstanding.find(serial);
  if (send == pipe->second.outstanding.end()) return;
  Counters& counters = members[pipe->second.from].counters;
  ++counters.messages_sent;
  counters.payload_bytes_sent += send->second.bytes;
  tell(pipe->second.from, {pipe->second.peer, send->second.token, true, std::nullopt});
  pipe->second.outstanding.erase(send);
}

void Fabric::State::close(uint64_t pipe_id, const std::optional<std::string>& why) {
  const auto it = pipes.find(pipe_id);
  if (it == pipes.end()) return;
  const Pipe& pipe = it->second;
  for (const auto& [serial, send] : pipe.outstanding) {
    tell(pipe.from, {pipe.peer, send.token, false, std::nullopt});
  }
  if (why) tell(pipe.from, {pipe.peer, 0, false, why});
  std::erase_if(members[pipe.to].inbox,
                [pipe_id](const Letter& letter) { return letter.pipe == pipe_id; });
  pipes.erase(it);
}

void Fabric::State::close_between(size_t a, size_t b, const std::string& why) {
  std::vector<uint64_t> broken;
  for (const auto& [pipe_id, pipe] : pipes) {
    if (pipe.from == a && pipe.to == b) broken.push_back(pipe_id);
  }
  for (const uint64_t pipe_id : broken) close(pipe_id, why);
}

void Fabric::State::bury(size_t dead, const std::string& why) {
  Member& member = members[dead];
  if (!member.alive) return;
  member.alive = false;
  std::vector<std::pair<uint64_t, bool>> broken;
  for (const auto& [pipe_id, pipe] : pipes) {
    if (pipe.from == dead || pipe.to == dead) broken.emplace_back(pipe_id, pipe.to == dead);
  }
  for (const auto& [pipe_id, told] : broken) {
    close(pipe_id, told ? std::optional<std::string>(why) : std::nullopt);
  }
  member.inbox.clear();
  member.notices.clear();
}

void Fabric::State::forget_loss(size_t index, PeerId peer) {
  std::erase_if(members[index].notices,
                [peer](const Notice& notice) { return notice.lost && notice.peer == peer; });
}

void Fabric::State::tell(size_t index, Notice notice) {
  if (!members[index].alive) return;
  if (!notice.lost && notice.token == 0) return;  // a send without a token is not reported
  members[index].notices.push_back(std::move(notice));
  wake(index);
}

void Fabric::State::wake(size_t index) { eventfd_write(members[index].event_fd, 1); }

}  // namespace gradring::transport
