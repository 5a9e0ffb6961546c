// Against a real socket: what a scraper gets, and what one can do that means no good.

#include "daemon/metrics/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>

#include "daemon/fd.h"
#include "daemon/metrics/board.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/metrics/scraper.h"

namespace gradring::daemon::metrics {
namespace {

using testing::HasSubstr;

class MetricsServer : public testing::Test {
 protected:
  MetricsServer() : port_(free_port()) {
    auto started = Server::start(address(), &board_);
    if (started) server_ = std::move(*started);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void show(const std::string& node) {
    auto snapshot = std::make_shared<Snapshot>();
    snapshot->node = node;
    board_.show(std::move(snapshot));
  }

  const int port_;
  Board board_;
  std::unique_ptr<Server> server_;
};

TEST_F(MetricsServer, ShowsTheLatestSnapshot) {
  ASSERT_NE(server_, nullptr);
  EXPECT_THAT(ask(port_, kScrape), HasSubstr("200 OK")) << "also before the first one";
  show("a");
  EXPECT_THAT(ask(port_, kScrape), HasSubstr("gradring_draining{node=\"a\"} 0\n"));
  show("b");
  EXPECT_THAT(ask(port_, kScrape), HasSubstr("gradring_draining{node=\"b\"} 0\n"));
}

TEST_F(MetricsServer, ServesNothingElse) {
  ASSERT_NE(server_, nullptr);
  EXPECT_THAT(ask(port_, "GET / HTTP/1.0\r\n\r\n"), HasSubstr(" 404 "));
  EXPECT_THAT(ask(port_, "GET /../../etc/passwd HTTP/1.0\r\n\r\n"), HasSubstr(" 40"));
  EXPECT_THAT(ask(port_, "PUT /metrics HTTP/1.0\r\nContent-Length: 1\r\n\r\nx"),
              testing::Not(HasSubstr("200 OK")));
}

TEST_F(MetricsServer, AScraperThatMeansNoGoodHoldsUpNobodyForLong) {
  ASSERT_NE(server_, nullptr);
  show("a");
  EXPECT_THAT(ask(port_, std::string(100'000, 'x') + "\r\n\r\n"), testing::Not(HasSubstr(" 200 ")));
  // More silent connections than there are threads and places to wait.
  std::vector<Fd> silent;
  for (int i = 0; i < 24; ++i) silent.push_back(connect_to(port_));
  // Each is given up after a while, so whoever asks again and again gets through.
  std::string answer;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (answer.find("200 OK") == std::string::npos && std::chrono::steady_clock::now() < until) {
    answer = ask(port_, kScrape);
  }
  EXPECT_THAT(answer, HasSubstr("gradring_draining{node=\"a\"} 0\n"));
  // And the end waits for none of them.
  silent.clear();
  for (int i = 0; i < 8; ++i) silent.push_back(connect_to(port_));
  const auto before = std::chrono::steady_clock::now();
  server_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20));
}

// A daemon that has stopped is looked for in its folder and at its ports by the next one.
TEST_F(MetricsServer, EndsAtOnceWhereNobodyAsks) {
  ASSERT_NE(server_, nullptr);
  show("a");
  EXPECT_THAT(ask(port_, kScrape), HasSubstr("200 OK"));
  const auto before = std::chrono::steady_clock::now();
  server_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(1));
}

TEST_F(MetricsServer, APortThatIsTakenIsNamed) {
  ASSERT_NE(server_, nullptr);
  const auto second = Server::start(address(), &board_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message(),
            "metrics: cannot listen at " + address() + ": it is in use; choose another port");
}

TEST_F(MetricsServer, AnAddressThatIsNotOursIsNamed) {
  const auto second = Server::start("203.0.113.1:7390", &board_);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message(), HasSubstr("203.0.113.1:7390: Cannot assign"));
}

TEST_F(MetricsServer, ACheckSaysAsMuchOfAnAddressWithoutItsPort) {
  ASSERT_NE(server_, nullptr);
  EXPECT_EQ(Server::fault_of(address()), "") << "the daemon that is asked about is there already";
  EXPECT_EQ(Server::fault_of(""), "") << "none is wanted";
  EXPECT_EQ(Server::fault_of("203.0.113.1:7390"),
            Server::start("203.0.113.1:7390", &board_).error().message());
  const std::string ipv6 = "[::1]:" + std::to_string(free_port());
  const auto there = Server::start(ipv6, &board_);
  EXPECT_EQ(Server::fault_of(ipv6), there ? "" : there.error().message());
}

// Whether it can depends on how civetweb was built, and on the machine.
TEST_F(MetricsServer, WhereItCannotServeIPv6ItSaysSo) {
  const auto second = Server::start("[::1]:" + std::to_string(free_port()), &board_);
  if (second) GTEST_SKIP() << "it can";
  EXPECT_THAT(second.error().message(),
              testing::AnyOf(HasSubstr("has no IPv6; write an IPv4 address"),
                             HasSubstr("Cannot assign"), HasSubstr("not supported")));
}

}  // namespace
}  // namespace gradring::daemon::metrics
