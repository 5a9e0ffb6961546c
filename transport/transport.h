#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "proto/frame.h"
#include "proto/status.h"

namespace gradring::transport {

// The owner's name for a peer: small and dense, never reused while connected.
using PeerId = uint32_t;

// What a transport tells its owner, always from inside progress(), on the owner's thread.
class Events {
 public:
  virtual ~Events() = default;

  // Where the payload of an arriving message shall go. `to` null: discard it. `cookie` comes back
  // in on_message or on_aborted.
  // Where `to` lies on a GPU (make_ready_on_gpu), a payload that the transport has in the host's
  // memory already goes to `on_host` instead.
  struct Landing {
    std::byte* to = nullptr;
    uint64_t cookie = 0;
    std::byte* on_host = nullptr;
  };
  // A header arrived, its payload is still on the way or in the transport's memory. The sender is
  // not known to the transport: the header must say who it is, and prove it.
  virtual Landing on_header(std::span<const std::byte> header, size_t payload_bytes) = 0;
  // The payload lies complete at Landing::to. Called exactly once for every on_header that gave a
  // destination or announced no payload, unless on_aborted was called instead.
  virtual void on_message(std::span<const std::byte> header, uint64_t cookie) = 0;
  // Before on_message: the payload lies at Landing::on_host.
  virtual void on_landed_on_host(uint64_t /*cookie*/) {}
  // The payload will never be complete; the memory at Landing::to is the owner's again.
  virtual void on_aborted(uint64_t cookie) = 0;
  // The payload memory of a send with a token other than 0 is the caller's again. `ok` false: the
  // connection broke. Called exactly once for each such send.
  virtual void on_sent(PeerId peer, uint64_t token, bool ok) = 0;
  // The connection broke; told once. Sends to this peer are refused until it is connected anew.
  virtual void on_lost(PeerId peer, const std::string& why) = 0;
};

struct Counters {
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t payload_bytes_sent = 0;
  uint64_t payload_bytes_received = 0;
  // Arrived without a header of kFrameBytes: no peer of ours sent them.
  uint64_t messages_dropped = 0;
  uint64_t registrations = 0;     // of memory for the device, ever
  uint64_t registered_bytes = 0;  // now

  Counters& operator+=(const Counters& other) {
    messages_sent += other.messages_sent;
    messages_received += other.messages_received;
    payload_bytes_sent += other.payload_bytes_sent;
    payload_bytes_received += other.payload_bytes_received;
    messages_dropped += other.messages_dropped;
    registrations += other.registrations;
    registered_bytes += other.registered_bytes;
    return *this;
  }
};

// Memory that a device may reach, until this ends: before the memory and the transport do.
class Registration {
 public:
  virtual ~Registration() = default;
};

// Moves messages between nodes: a fixed header of kFrameBytes and a payload. Reliable until the
// connection breaks. All calls come from one thread, the owner's; none waits for the network.
class Transport {
 public:
  virtual ~Transport() = default;

  // "ucx 1.13.1": body and version; peers compare it in their hello.
  virtual std::string name() const = 0;
  // The devices in use, and why these: for people.
  virtual std::string devices() const = 0;
  virtual std::string devices_reason() const = 0;

  // Whether it was built to send what lies on a GPU, and has devices of the kind that may.
  virtual bool reaches_gpus() const { return false; }
  // Why they cannot all the same, in words; ok: they can. `dmabufs`: GPUs here lend their memory
  // so.
  virtual Status can_reach_gpus(bool /*dmabufs*/) const {
    return {Code::kUnavailable, name() + " does not reach GPUs"};
  }

  // Opaque bytes by which another transport of the same body can connect() to this one.
  virtual std::string address() const = 0;

  // Does not wait for the peer: what fails later is told by on_lost.
  virtual Status connect(PeerId peer, const std::string& address) = 0;
  // Ends the connection at once. Outstanding sends complete (on_sent, ok=false) before it returns
  // or in the next progress(); receives under way are aborted likewise. Unknown peers are ignored.
  virtual void disconnect(PeerId peer) = 0;

  // Copies the header. The payload is lent until on_sent(peer, token) when token is not 0; a send
  // without payload may use token 0 and is then not reported.
  virtual Status send(PeerId peer, const FrameBytes& header, std::span<const std::byte> payload,
                      uint64_t token) = 0;

  // For memory that payloads are sent from and land in again and again: a device that has to know
  // its pages is told once, here, and not when messages move. Takes milliseconds. Null where the
  // device needs none; refused where the system allows no more of it.
  virtual tl::expected<std::unique_ptr<Registration>, Status> make_ready(
      std::span<std::byte> /*memory*/) {
    return nullptr;
  }

  // Likewise of memory on a GPU, at its address there: payloads may lie in it until this ends.
  // Refused where the transport does not reach it.
  virtual tl::expected<std::unique_ptr<Registration>, Status> make_ready_on_gpu(
      std::span<std::byte> /*memory*/) {
    return tl::unexpected(can_reach_gpus(true));
  }

  // Does what can be done without waiting, and returns the amount of work done (0: nothing).
  virtual int progress(Events& events) = 0;

  // Readable when progress() has work, provided that arm() said so before sleeping.
  virtual int event_fd() const = 0;
  // True: safe to sleep on event_fd(). False: call progress() again first.
  virtual bool arm() = 0;

  virtual Counters counters() const = 0;

  // The largest payload that goes out in one piece at full speed on this transport's devices;
  // slices are not made larger.
  virtual size_t preferred_payload_bytes() const = 0;
};

}  // namespace gradring::transport
