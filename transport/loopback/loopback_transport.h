#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "transport/loopback/state.h"
#include "transport/transport.h"

namespace gradring::transport {

// One member's end of a Fabric.
class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(std::shared_ptr<Fabric::State> state, size_t self);
  ~LoopbackTransport() override;
  LoopbackTransport(const LoopbackTransport&) = delete;
  LoopbackTransport& operator=(const LoopbackTransport&) = delete;

  std::string name() const override { return "loopback 1"; }
  std::string devices() const override { return "memory of this process"; }
  std::string devices_reason() const override { return "loopback joins transports of one process"; }
  std::string address() const override;
  Status connect(PeerId peer, const std::string& address) override;
  void disconnect(PeerId peer) override;
  Status send(PeerId peer, const FrameBytes& header, std::span<const std::byte> payload,
              uint64_t token) override;
  // GPUs of this process's memory: those of tests.
  bool reaches_gpus() const override { return true; }
  Status can_reach_gpus(bool /*dmabufs*/) const override { return {}; }
  tl::expected<std::unique_ptr<Registration>, Status> make_ready_on_gpu(
      std::span<std::byte> /*memory*/) override {
    return nullptr;
  }
  int progress(Events& events) override;
  int event_fd() const override { return event_fd_; }
  bool arm() override;
  Counters counters() const override;
  // The same slices as over TCP, so that what runs over loopback is what runs over a network.
  size_t preferred_payload_bytes() const override { return size_t{256} << 10; }

 private:
  // Where it goes that way, what is smaller goes by the host's memory, as other transports have it
  // there already.
  static constexpr size_t kStraightBytes = 16 << 10;

  void hand_over(Letter letter, Events& events);
  int tell_notices(Events& events);

  const std::shared_ptr<Fabric::State> state_;
  const size_t self_;
  int event_fd_ = -1;
  std::map<PeerId, uint64_t> pipes_;  // by peer, the last connection; it may have been lost
};

}  // namespace gradring::transport
