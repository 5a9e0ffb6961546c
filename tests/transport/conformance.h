#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "proto/frame.h"
#include "transport/transport.h"

// What every body of transport/transport.h has to do, and the means to ask for it.
namespace gradring::transport::conformance {

// A peer that the test can kill. From the moment it is told an address it connects there, and sends
// payloads of kDoomedBytes without end; it takes whatever it is sent.
inline constexpr size_t kDoomedBytes = size_t{256} << 10;
class DoomedPeer {
 public:
  virtual ~DoomedPeer() = default;
  virtual std::string address() const = 0;
  virtual void meet(const std::string& address) = 0;
  virtual void freeze() = 0;  // takes and sends nothing any more, and is not dead
  virtual void kill() = 0;
  virtual void turn() = 0;  // for a peer that has no life of its own
};

// How to make transports of one body. One Body is one network: its transports can reach each other.
class Body {
 public:
  virtual ~Body() = default;
  virtual std::unique_ptr<Transport> make(const std::string& name) = 0;
  virtual std::unique_ptr<DoomedPeer> doomed() = 0;
};
struct BodyKind {
  std::string name;
  std::function<std::unique_ptr<Body>()> make;
};
inline void PrintTo(const BodyKind& kind, std::ostream* out) { *out << kind.name; }  // NOLINT
std::vector<BodyKind> all_bodies();

// What UCX's bodies run over: the loopback interface, or what CONFORMANCE_DEVICE names, as in
// rxe0:1.
inline std::string ucx_device() {
  const char* named = std::getenv("CONFORMANCE_DEVICE");
  return named != nullptr ? named : "lo";
}

// Remembers all it is told, and checks that nothing is told twice.
class Recorder : public Events {
 public:
  struct Message {
    FrameBytes header;
    std::vector<std::byte> payload;
  };

  Landing on_header(std::span<const std::byte> header, size_t payload_bytes) override;
  void on_message(std::span<const std::byte> header, uint64_t cookie) override;
  void on_aborted(uint64_t cookie) override;
  void on_sent(PeerId peer, uint64_t token, bool ok) override;
  void on_lost(PeerId peer, const std::string& why) override;

  size_t sent_ok() const;
  size_t sent_failed() const { return sent.size() - sent_ok(); }

  bool discard = false;
  bool keep = true;  // messages, that is; off for floods
  // Told after each message, from inside the callback.
  std::function<void(const Message&)> then;

  size_t headers = 0;
  std::vector<Message> messages;
  size_t received = 0, aborted = 0;
  std::map<std::pair<PeerId, uint64_t>, bool> sent;  // by peer and token: how it ended
  std::vector<PeerId> lost;
  std::map<uint64_t, std::vector<std::byte>> open;  // announced, neither complete nor aborted

 private:
  uint64_t next_cookie_ = 1;
};

// A transport and its owner.
struct Node {
  explicit Node(std::unique_ptr<Transport> owned) : transport(std::move(owned)) {}
  int turn() { return transport->progress(seen); }
  Status connect(PeerId peer, const Node& other) {
    return transport->connect(peer, other.transport->address());
  }

  Recorder seen;  // outlives the transport
  std::unique_ptr<Transport> transport;
};

// A header that carries a number, and one that reads it back.
FrameBytes header_of(uint64_t number);
uint64_t number_of(const FrameBytes& header);
std::vector<std::byte> pattern(size_t bytes, uint64_t seed);

inline constexpr std::chrono::seconds kPatience{20};

// Turns all nodes until `done`; false when patience ends first.
bool pump(const std::vector<Node*>& nodes, const std::function<bool()>& done,
          std::chrono::milliseconds patience = kPatience);
// Turns them for a while, to give what must not happen the time to happen.
void idle(const std::vector<Node*>& nodes, std::chrono::milliseconds time);

}  // namespace gradring::transport::conformance
