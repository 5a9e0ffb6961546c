#include "daemon/control/peers/lane_paths.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace gradring::daemon {
namespace {

using core::kSecond;

TEST(LanePaths, TheMedianOfTheLastFiveSecondsCounts) {
  LanePaths paths;
  EXPECT_EQ(paths.rate(1, 0, kSecond), 0u);
  paths.measured(1, 0, 500, kSecond);
  paths.measured(1, 0, 90, 2 * kSecond);
  paths.measured(1, 0, 100, 3 * kSecond);
  paths.measured(1, 1, 7, 3 * kSecond);
  EXPECT_EQ(paths.rate(1, 0, 3 * kSecond), 100u);
  EXPECT_EQ(paths.rate(1, 1, 3 * kSecond), 7u);
  EXPECT_EQ(paths.rate(2, 0, 3 * kSecond), 0u);
  paths.measured(1, 0, 80, 6 * kSecond);  // the 500 is forgotten
  EXPECT_EQ(paths.rate(1, 0, 6 * kSecond), 90u);
  EXPECT_EQ(paths.rate(1, 0, 20 * kSecond), 0u) << "nobody has measured it since";
}

TEST(LanePaths, OfSeveralConnectionsTheOneThatCarriedMostCounts) {
  const std::vector<TcpPath> paths = {{"10.0.0.1", "10.0.0.2", 900, 33},
                                      {"10.0.0.1", "10.0.0.2", 1'000'000, 44},
                                      {"10.0.0.1", "10.0.0.3", 9'000'000, 55}};
  EXPECT_EQ(delivery_rate_between(paths, "10.0.0.1", "10.0.0.2"), 44u);
  EXPECT_EQ(delivery_rate_between(paths, "10.0.0.2", "10.0.0.1"), 0u);
}

TEST(LanePaths, OwnConnectionsAreFound) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int near = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(connect(near, reinterpret_cast<sockaddr*>(&address), size), 0);
  const int far = accept(listener, nullptr, nullptr);
  ASSERT_GE(far, 0);
  std::array<char, 40'000> bytes{};
  ASSERT_EQ(write(near, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t some = read(far, bytes.data(), bytes.size());
    ASSERT_GT(some, 0);
    got += static_cast<size_t>(some);
  }
  const std::vector<TcpPath> paths = own_tcp_paths();
  EXPECT_TRUE(std::ranges::any_of(paths, [](const TcpPath& path) {
    return path.local == "127.0.0.1" && path.remote == "127.0.0.1";
  }));
  for (const int fd : {listener, near, far}) close(fd);
}

TEST(LanePaths, TheAddressOfALaneIsThatOfItsInterface) {
  EXPECT_EQ(address_of_lane("lo (TCP)"), "127.0.0.1");
  EXPECT_EQ(address_of_lane("mlx5_0:1 (RDMA)"), "");
  EXPECT_EQ(address_of_lane("no-such-device (TCP)"), "");
}

}  // namespace
}  // namespace gradring::daemon
