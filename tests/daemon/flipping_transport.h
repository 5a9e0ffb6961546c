#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/random.h"
#include "transport/transport.h"

namespace gradring::daemon {

// What goes wrong on its way in; the test sets it, the transport's owner meets it.
struct Flips {
  std::atomic<uint32_t> payload_percent = 0;  // of the payloads get one bit flipped ...
  std::atomic<bool> every_attempt = false;    // ... also when they come again
  std::atomic<uint32_t> headers = 0;          // so many of the next headers of slices do
  std::atomic<uint32_t> header_bit = 0;       // this one
  std::atomic<uint64_t> done = 0;
};

// Any transport, with bits that flip between the sender's memory and the receiver's.
class FlippingTransport : public transport::Transport {
 public:
  FlippingTransport(std::unique_ptr<transport::Transport> under, Flips* flips)
      : under_(std::move(under)), flips_(flips) {}

  std::string name() const override { return under_->name(); }
  std::string devices() const override { return under_->devices(); }
  std::string devices_reason() const override { return under_->devices_reason(); }
  std::string address() const override { return under_->address(); }
  Status connect(transport::PeerId peer, const std::string& address) override {
    return under_->connect(peer, address);
  }
  void disconnect(transport::PeerId peer) override { under_->disconnect(peer); }
  Status send(transport::PeerId peer, const FrameBytes& header, std::span<const std::byte> payload,
              uint64_t token) override {
    return under_->send(peer, header, payload, token);
  }
  int progress(transport::Events& events) override {
    Flipper flipper(this, &events);
    return under_->progress(flipper);
  }
  int event_fd() const override { return under_->event_fd(); }
  bool arm() override { return under_->arm(); }
  transport::Counters counters() const override { return under_->counters(); }
  size_t preferred_payload_bytes() const override { return under_->preferred_payload_bytes(); }

 private:
  struct Place {
    std::byte* to = nullptr;
    size_t bytes = 0;
    bool first_attempt = true;
  };
  class Flipper final : public transport::Events {
   public:
    Flipper(FlippingTransport* self, transport::Events* owner) : self_(self), owner_(owner) {}

    Landing on_header(std::span<const std::byte> header, size_t payload_bytes) override {
      std::vector<std::byte> copy(header.begin(), header.end());
      Flips& flips = *self_->flips_;
      if (payload_bytes > 0 && flips.headers > 0) {
        --flips.headers;
        ++flips.done;
        copy[flips.header_bit / 8] ^= std::byte{1} << (flips.header_bit % 8);
      }
      const Landing landing = owner_->on_header(copy, payload_bytes);
      if (landing.cookie != 0) {
        const auto frame = decode(copy, payload_bytes);
        const bool first = frame && frame->slice.attempt == 1;
        self_->place(landing.cookie) = {landing.to, payload_bytes, first};
      }
      return landing;
    }
    void on_message(std::span<const std::byte> header, uint64_t cookie) override {
      if (cookie != 0) self_->flip(self_->place(cookie));
      owner_->on_message(header, cookie);
    }
    void on_landed_on_host(uint64_t cookie) override { owner_->on_landed_on_host(cookie); }
    void on_aborted(uint64_t cookie) override { owner_->on_aborted(cookie); }
    void on_sent(transport::PeerId peer, uint64_t token, bool ok) override {
      owner_->on_sent(peer, token, ok);
    }
    void on_lost(transport::PeerId peer, const std::string& why) override {
      owner_->on_lost(peer, why);
    }

   private:
    FlippingTransport* const self_;
    transport::Events* const owner_;
  };

  Place& place(uint64_t cookie) {
    if (cookie >= places_.size()) places_.resize(cookie + 1);
    return places_[cookie];
  }
  void flip(const Place& place) {
    if (random_.below(100) >= flips_->payload_percent) return;
    if (!place.first_attempt && !flips_->every_attempt) return;
    ++flips_->done;
    place.to[random_.below(place.bytes)] ^= std::byte{1} << random_.below(8);
  }

  const std::unique_ptr<transport::Transport> under_;
  Flips* const flips_;
  core::Random random_{7};
  std::vector<Place> places_;  // by cookie, which are small
};

}  // namespace gradring::daemon
