#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/tcp/endpoints.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/wire.h"
#include "transport/transport.h"

namespace gradring::transport {

// The sending end of a connection: messages wait here until the kernel has taken them.
class Outgoing {
 public:
  Outgoing(const Identity& to, const Identity& from, std::vector<Way> ways)
      : to_(to), greeting_(encode_greeting(to, from)), ways_(std::move(ways)) {}

  int fd() const { return socket_.fd(); }
  const Identity& to() const { return to_; }

  // Opens it by the next way that can be begun. An error where there is none left, in words.
  Status open();
  // It is not open, and may be opened by another way.
  bool has_other_ways() const { return !open_ && ways_.size() > 1; }
  // Nothing was heard this way; open() takes the next, and the first again behind the last.
  void go_on_round() { next_way_ %= ways_.size(); }
  // The kernel has news of it: that it can be written to, or something else. An error ends this
  // way.
  Status look(bool writable);
  bool is_open() const { return open_; }

  struct Message {
    PrefixBytes prefix;
    std::span<const std::byte> payload;
    uint64_t token = 0;
    size_t bytes() const { return kPrefixBytes + payload.size(); }
  };
  static Message message(const FrameBytes& header, std::span<const std::byte> payload,
                         uint64_t token) {
    return {encode_prefix(payload.size(), header), payload, token};
  }

  // Messages that are not with the kernel yet.
  size_t waiting() const { return waiting_.size() - first_; }
  void add(const Message& message) { waiting_.push_back(message); }

  struct Sent {
    uint64_t token = 0;
    size_t payload_bytes = 0;
  };
  // Gives the kernel what it takes, and appends what it has taken whole. An error: it is broken.
  Status give(std::vector<Sent>* sent);
  // What will never be sent.
  std::vector<Sent> give_up();

 private:
  Status begin(const Way& way);
  void taken(size_t bytes, std::vector<Sent>* sent);

  const Identity to_;
  const GreetingBytes greeting_;
  const std::vector<Way> ways_;
  size_t next_way_ = 0;
  Socket socket_;
  bool open_ = false;
  size_t greeted_ = 0;  // bytes of the greeting that are gone
  // From first_ on. No deque, which would take and free memory all the time.
  std::vector<Message> waiting_;
  size_t first_ = 0;
  size_t gone_ = 0;  // bytes of the first that are gone
};

}  // namespace gradring::transport
