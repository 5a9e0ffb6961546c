#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/frame.h"
#include "transport/loopback/fabric.h"
#include "transport/transport.h"

namespace gradring::transport {

// Sends accepted on one connection and not yet taken by the receiver; more are refused. Far above
// what credits let a peer have under way, and the same as in the UCX body.
inline constexpr size_t kLoopbackSendsMax = 4096;
// How long a reordered message stays behind, in turns of the receiver: long enough for a sender in
// the same loop to overtake it, short enough not to look lost.
inline constexpr uint64_t kReorderTurns = 3;

// A message on the way.
struct Letter {
  uint64_t pipe = 0;    // by which it came: names the sender's connection
  uint64_t serial = 0;  // of the send within the pipe
  uint64_t due = 0;     // turn of the receiver from which on it may be delivered
  bool copy = false;    // a duplicate: its delivery completes nothing
  FrameBytes header{};
  std::vector<std::byte> payload;
};

// What a transport will tell its owner in the next progress().
struct Notice {
  PeerId peer = 0;
  uint64_t token = 0;
  bool ok = false;
  std::optional<std::string> lost;  // set: on_lost instead of on_sent
};

struct Member {
  std::string name;
  bool alive = true;
  int event_fd = -1;
  uint64_t turn = 0;  // calls of progress()
  Counters counters;
  std::deque<Letter> inbox;
  std::deque<Notice> notices;
};

// One connection: the way from a member to another.
struct Pipe {
  struct Send {
    uint64_t token = 0;
    size_t bytes = 0;
  };
  size_t from = 0, to = 0;  // index of the member
  PeerId peer = 0;          // the sender's name for the receiver
  uint64_t sends = 0;
  uint64_t last_due = 0;
  std::map<uint64_t, Send> outstanding;  // by serial
};

// Everything the transports of a fabric share, under one mutex: simple, and fast enough for a
// network whose purpose is to be watched. No callback of an owner is ever made while it is held.
struct Fabric::State {
  explicit State(uint64_t fabric_seed);
  ~State();

  using Direction = std::pair<std::string, std::string>;
  struct Weather {
    LinkFaults faults;
    uint64_t accepted = 0;  // since the faults were set
    std::mt19937_64 dice;
  };

  std::mutex mutex;
  const uint64_t seed;
  const uint64_t id;            // tells the addresses of two fabrics apart
  std::vector<Member> members;  // never shrinks: an index is valid for ever
  std::map<uint64_t, Pipe> pipes;
  uint64_t next_pipe = 1;
  std::map<Direction, Weather> weather;
  std::set<std::string> stopped;  // names of nodes cut off from everybody

  // All of these want the mutex held.
  std::optional<size_t> find(const std::string& name) const;  // among the living
  Weather& weather_of(const std::string& from, const std::string& to);
  void accept(uint64_t pipe, const FrameBytes& header, std::span<const std::byte> payload,
              uint64_t token);
  void deliver(size_t to, Letter letter);
  void complete(uint64_t pipe, uint64_t serial);  // the receiver has taken it
  // Fails what is outstanding; `why` tells the owner on_lost.
  void close(uint64_t pipe, const std::optional<std::string>& why);
  void close_between(size_t a, size_t b, const std::string& why);  // from a to b only
  void bury(size_t member, const std::string& why);
  // The owner acted before it was told: news of the old connection would be taken for the new
  // one's.
  void forget_loss(size_t member, PeerId peer);
  void tell(size_t member, Notice notice);
  void wake(size_t member);
};

}  // namespace gradring::transport
