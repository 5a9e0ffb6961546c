// The peer that dies: a process with a transport over TCP on lo, or one of UCX on ucx_device().
// Writes its address to stdout as a line of hexadecimal digits, reads the one to connect to from
// stdin, and sends without end. usage: conformance_peer tcp | RENDEZVOUS_BYTES (of UCX; 0: none)
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/transport/conformance.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/ucx/ucx_transport.h"

namespace {

using gradring::FrameBytes;
using gradring::transport::Events;
using gradring::transport::PeerId;

constexpr int kUnderWay = 4;

class Sink final : public Events {
 public:
  Landing on_header(std::span<const std::byte> /*header*/, size_t payload_bytes) override {
    std::vector<std::byte>& landing = open_[++cookie_];
    landing.resize(payload_bytes);
    return {landing.data(), cookie_};
  }
  void on_message(std::span<const std::byte> /*header*/, uint64_t cookie) override {
    open_.erase(cookie);
  }
  void on_aborted(uint64_t cookie) override { open_.erase(cookie); }
  void on_sent(PeerId /*peer*/, uint64_t /*token*/, bool /*ok*/) override { --under_way; }
  void on_lost(PeerId /*peer*/, const std::string& /*why*/) override { lost = true; }

  int under_way = 0;
  bool lost = false;

 private:
  std::unordered_map<uint64_t, std::vector<std::byte>> open_;
  uint64_t cookie_ = 0;
};

auto make_transport(const std::string& body) {
  if (body == "tcp") return gradring::transport::make_tcp_transport({{"lo"}, "for tests"});
  gradring::transport::UcxOptions options;
  options.devices = {gradring::transport::conformance::ucx_device()};
  if (const size_t bytes = std::stoul(body)) options.rendezvous_bytes = bytes;
  return gradring::transport::make_ucx_transport(options);
}

}  // namespace

int main(int /*argc*/, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto transport = make_transport(argv[1]);
  if (!transport) return 1;
  for (const unsigned char byte : (*transport)->address()) dprintf(0, "%02x", byte);
  dprintf(0, "\n");

  fcntl(0, F_SETFL, O_NONBLOCK);
  const std::vector<std::byte> payload(gradring::transport::conformance::kDoomedBytes);
  std::string line, address;
  Sink sink;
  uint64_t token = 0;
  for (;;) {
    char digit = 0;
    while (address.empty() && read(0, &digit, 1) == 1) {
      if (digit != '\n') {
        line += digit;
        continue;
      }
      for (size_t i = 0; i + 1 < line.size(); i += 2) {
        address += static_cast<char>(std::strtoul(line.substr(i, 2).c_str(), nullptr, 16));
      }
      if (!(*transport)->connect(0, address).ok()) return 1;
    }
    while (!address.empty() && !sink.lost && sink.under_way < kUnderWay) {
      if (!(*transport)->send(0, FrameBytes{}, payload, ++token).ok()) break;
      ++sink.under_way;
    }
    (*transport)->progress(sink);
  }
}
