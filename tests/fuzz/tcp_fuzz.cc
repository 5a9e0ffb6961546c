// What comes by a connection over TCP, as any host that reaches the data port may send it, in
// pieces of any size; and the address that a peer says it listens at.
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "transport/tcp/endpoints.h"
#include "transport/tcp/incoming.h"

namespace {

using namespace gradring;
using namespace gradring::transport;
using fuzz::require;

constexpr Identity kMe{std::byte{1}};

// Takes small payloads, and wants none of others.
class Owner final : public Events {
 public:
  Landing on_header(std::span<const std::byte> header, size_t payload_bytes) override {
    require(header.size() == kFrameBytes, "only whole headers are told of");
    require(payload_bytes <= kPayloadMax, "what is no length is not told of");
    if (payload_bytes > 4096) return {};
    std::vector<std::byte>& landing = open[++cookie_];
    landing.resize(payload_bytes);
    return {landing.data(), cookie_};
  }
  void on_message(std::span<const std::byte> /*header*/, uint64_t cookie) override {
    require(open.erase(cookie) == 1, "each is complete once");
  }
  void on_aborted(uint64_t cookie) override {
    require(open.erase(cookie) == 1, "each is aborted once");
  }
  void on_sent(PeerId /*peer*/, uint64_t /*token*/, bool /*ok*/) override {}
  void on_lost(PeerId /*peer*/, const std::string& /*why*/) override {}

  std::map<uint64_t, std::vector<std::byte>> open;

 private:
  uint64_t cookie_ = 0;
};

void receive(std::span<const std::byte> bytes, size_t piece) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
  const Socket there(ends[1]);
  Incoming incoming(Socket(ends[0]), kMe);
  Owner owner;
  Counters counters;
  bool goes_on = true;
  while (goes_on && !bytes.empty()) {
    const size_t length = std::min(piece, bytes.size());
    if (::send(there.fd(), bytes.data(), length, MSG_NOSIGNAL) < 0) break;
    bytes = bytes.subspan(length);
    goes_on = incoming.take(&owner, &counters);
  }
  if (const auto cookie = incoming.abort()) owner.on_aborted(*cookie);
  require(owner.open.empty(), "what was begun is ended");
}

std::vector<std::string> make_samples() {
  const auto text = [](const auto& bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const std::string greeting = text(encode_greeting(kMe, kMe));
  const FrameBytes header{};
  const std::string small = text(encode_prefix(100, header)) + std::string(100, 'p');
  const std::string none = text(encode_prefix(0, header));
  const std::string unwanted = text(encode_prefix(5000, header)) + std::string(5000, 'u');
  RawAddress address;
  address.endpoints.resize(2);
  address.endpoints[1].v6 = true;
  return {greeting, greeting + small + none + small, greeting + unwanted + none,
          greeting + text(encode_prefix(kPayloadMax + 1, header)), encode_address(address)};
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  static const auto kSamples = make_samples();
  return fuzz::mutate(kSamples, data, size, size_max, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(data);
  if (const auto address = decode_address({reinterpret_cast<const char*>(data), size})) {
    require(encode_address(*address).size() == size, "all of an address is read");
    for (const Endpoint& endpoint : address->endpoints) require(!endpoint.text().empty(), "named");
  }
  for (const size_t piece : {size_t{1} << 20, size_t{1000}, size_t{61}})
    receive({bytes, size}, piece);
  return 0;
}
