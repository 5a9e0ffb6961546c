#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "transport/tcp/socket.h"
#include "transport/tcp/wire.h"
#include "transport/transport.h"

namespace gradring::transport {

// The receiving end of a connection: from what the kernel has of it to messages.
class Incoming {
 public:
  // `me` outlives it.
  Incoming(Socket socket, const Identity& me) : socket_(std::move(socket)), me_(me) {}

  int fd() const { return socket_.fd(); }
  // Who it is from, once that is known.
  const std::optional<Identity>& from() const { return from_; }

  // Takes what is there, up to a bound, and tells of it. False: the connection is over.
  bool take(Events* events, Counters* counters);

  // The rest of a payload that is under way goes nowhere. Its cookie, if it had a destination.
  std::optional<uint64_t> abort();

 private:
  // Headers and small payloads pass through a buffer; of a large one only what came together with
  // its header, which is little beside what goes straight to its destination.
  static constexpr size_t kBufferBytes = 8 << 10;

  struct Payload {
    FrameBytes header;
    Events::Landing landing;
    std::byte* to = nullptr;  // the next byte; null: nowhere
    uint64_t bytes = 0;       // of all of it
    uint64_t left = 0;        // that have not come yet
  };

  long receive(size_t* asked);                     // as recvmsg(2)
  bool parse(Events* events, Counters* counters);  // false: what came makes no sense
  bool take_greeting();
  bool begin_message(Events* events, Counters* counters);
  static void end_message(const Payload& payload, Events* events, Counters* counters);
  size_t buffered() const { return end_ - begin_; }
  void be_told_of(uint64_t bytes);

  Socket socket_;
  const Identity& me_;
  std::optional<Identity> from_;
  std::optional<Payload> payload_;  // while it is set, nothing is buffered
  std::array<std::byte, kBufferBytes> buffer_;
  size_t begin_ = 0, end_ = 0;  // what is buffered
  int told_of_ = 1;             // bytes that the kernel has when it says that there are some
};

}  // namespace gradring::transport
