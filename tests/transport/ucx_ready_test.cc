// Memory that a card has to know, walked over TCP by rendezvous.
#include <gtest/gtest.h>

#include "tests/transport/conformance.h"
#include "transport/ucx/ucx_transport.h"

namespace gradring::transport::conformance {
namespace {

Node by_rendezvous() { return Node(*make_ucx_transport({{"lo"}, "", size_t{64} << 10})); }

TEST(UcxReady, MemoryIsToldOnceAndCountedUntilItIsLetGoOf) {
  Node a = by_rendezvous();
  Node b = by_rendezvous();
  std::vector<std::byte> memory = pattern(size_t{1} << 20, 1);
  auto ready = a.transport->make_ready(memory);
  ASSERT_TRUE(ready) << ready.error().message();
  ASSERT_NE(*ready, nullptr);
  EXPECT_EQ(a.transport->counters().registrations, 1u);
  EXPECT_EQ(a.transport->counters().registered_bytes, memory.size());
  ASSERT_TRUE(a.connect(1, b).ok());
  for (uint64_t i = 1; i <= 20; ++i) {
    ASSERT_TRUE(a.transport->send(1, header_of(i), memory, i).ok());
    ASSERT_TRUE(pump({&a, &b}, [&] { return b.seen.received == i && a.seen.sent.size() == i; }));
  }
  EXPECT_EQ(b.seen.messages.back().payload, memory);
  EXPECT_EQ(a.transport->counters().registrations, 1u);
  ready->reset();
  EXPECT_EQ(a.transport->counters().registered_bytes, 0u);
}

TEST(UcxReady, SocketsNeedNone) {
  const auto made = make_ucx_transport({{"lo"}, "", {}});
  std::vector<std::byte> memory(1 << 16);
  const auto ready = (*made)->make_ready(memory);
  ASSERT_TRUE(ready);
  EXPECT_EQ(*ready, nullptr);
  EXPECT_EQ((*made)->counters().registrations, 0u);
}

TEST(UcxReady, WhoseDevicesReachNoGpuSaysSo) {
  for (const bool gpus : {false, true}) {
    const auto made = make_ucx_transport({{"lo"}, "", {}, {}, gpus});
    ASSERT_TRUE(made) << made.error().message();
    EXPECT_FALSE((*made)->reaches_gpus());
    std::vector<std::byte> memory(1 << 16);
    const auto ready = (*made)->make_ready_on_gpu(memory);
    ASSERT_FALSE(ready);
    EXPECT_EQ(ready.error().code(), Code::kUnavailable);
    EXPECT_NE(ready.error().message().find("lo (TCP) is no RDMA device"), std::string::npos)
        << ready.error().message();
  }
}

}  // namespace
}  // namespace gradring::transport::conformance
