// Peers that a list names, in more ways than one, or no longer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "tests/daemon/live_daemon.h"
#include "tests/daemon/raw_trainer.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

bool comes_true(const std::function<bool()>& what) {
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (!what()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

class LiveFoundTest : public testing::Test {
 protected:
  static std::string at(const std::string& host, int port) {
    return host + ":" + std::to_string(port);
  }
  void list(const std::string& lines) const {
    scratch_.write("list.new", lines);
    std::filesystem::rename(scratch_.path("list.new"), scratch_.path("list"));
  }
  std::vector<std::string> finds() const { return {"--discover", "file:" + scratch_.path("list")}; }
  static wire::PeersReport peers_of(RawTrainer& asks) {
    wire::ClientMessage query;
    query.mutable_query()->set_what(wire::Query::PEERS);
    return asks.ask(query).reply().peers();
  }
  static bool is_up(RawTrainer& asks) {
    const wire::PeersReport report = peers_of(asks);
    return report.peers_size() == 1 && report.peers(0).state() == "up";
  }

  const Scratch scratch_;
  const int port_a_ = free_port(), port_b_ = free_port();
  const std::string b_at_ = at("127.0.0.1", port_b_), also_at_ = at("localhost", port_b_);
};

TEST_F(LiveFoundTest, ASecondNameOfAPeerTakesNoJobAway) {
  list(b_at_ + "\n");
  LiveDaemon a(finds(), "a", port_a_);
  LiveDaemon b({"--peer", at("127.0.0.1", port_a_)}, "b", port_b_);
  RawTrainer x(a.runtime_dir()), y(b.runtime_dir());
  ASSERT_TRUE(form_job("job", {&x, &y}));
  const std::string before = b.log();

  list(b_at_ + "\n" + also_at_ + "\n");
  ASSERT_TRUE(comes_true([&] {
    return a.log().find("1 of them new, 0 gone", 0) != std::string::npos &&
           a.log().find("2 peers") != std::string::npos;
  }));
  std::this_thread::sleep_for(1s);
  EXPECT_THAT(b.log().substr(before.size()), Not(HasSubstr("is lost")));
  EXPECT_TRUE(is_up(x)) << "the same daemon is shown once:\n" << peers_of(x).DebugString();
  const auto mx = x.allocate(64), my = y.allocate(64);
  x.submit(RawTrainer::allreduce(mx, 16, 0));
  y.submit(RawTrainer::allreduce(my, 16, 0));
  EXPECT_EQ(x.completion().verdict(), kOk);
  EXPECT_EQ(y.completion().verdict(), kOk);
}

TEST_F(LiveFoundTest, OfTwoNamesThatAreThereFromTheBeginningOneIsUsedForGood) {
  list(b_at_ + "\n" + also_at_ + "\n");
  LiveDaemon a(finds(), "a", port_a_);
  LiveDaemon b({"--peer", at("127.0.0.1", port_a_)}, "b", port_b_);
  RawTrainer asks(a.runtime_dir());
  ASSERT_TRUE(comes_true([&] { return is_up(asks); })) << a.log();
  std::this_thread::sleep_for(1s);  // both were dialled at once, and had to sort it out
  const std::string before = a.log();
  std::this_thread::sleep_for(3s);
  EXPECT_EQ(a.log().substr(before.size()), "");
  EXPECT_TRUE(is_up(asks)) << peers_of(asks).DebugString();
}

TEST_F(LiveFoundTest, TheOtherNameIsDialledWhenTheFirstIsNoMore) {
  list(b_at_ + "\n" + also_at_ + "\n");
  LiveDaemon a(finds(), "a", port_a_);
  LiveDaemon b({"--peer", at("127.0.0.1", port_a_)}, "b", port_b_);
  RawTrainer asks(a.runtime_dir());
  ASSERT_TRUE(comes_true([&] { return is_up(asks); })) << a.log();
  b.stop();
  list(also_at_ + "\n");
  ASSERT_TRUE(comes_true([&] { return a.log().find("1 gone") != std::string::npos; }));
  b.start();
  EXPECT_TRUE(comes_true([&] {
    return is_up(asks) && peers_of(asks).peers(0).address() == also_at_;
  })) << a.log();
}

TEST_F(LiveFoundTest, WhoRestartsIsMetAgainAlthoughTheListHasLostItMeanwhile) {
  list(b_at_ + "\n");
  LiveDaemon a(finds(), "a", port_a_);
  LiveDaemon b({"--keep", "--restart-grace", "20s", "--peer", at("127.0.0.1", port_a_)}, "b",
               port_b_);
  RawTrainer asks(a.runtime_dir());
  ASSERT_TRUE(comes_true([&] { return is_up(asks); })) << a.log();
  list("# a name server leaves out who is not ready\n");
  ASSERT_TRUE(comes_true([&] { return a.log().find("1 gone") != std::string::npos; }));
  b.signal(SIGUSR1);
  ASSERT_TRUE(comes_true([&] { return a.log().find("went away") != std::string::npos; }));
  EXPECT_TRUE(comes_true([&] { return is_up(asks); })) << a.log();
}

// Its address is named over there; it is only not believed yet to be who it was.
TEST_F(LiveFoundTest, WhoWasRefusedAndComesMendedIsNotTurnedAwayAsAStranger) {
  LiveDaemon a({"--peer", b_at_}, "a", port_a_);
  scratch_.write("conf", "slots = 16\n");
  LiveDaemon b({"--peer", at("127.0.0.1", port_a_), "--config", scratch_.path("conf")}, "b",
               port_b_);
  ASSERT_TRUE(comes_true([&] { return b.log().find(" is up") != std::string::npos; }));
  b.stop();
  scratch_.write("conf", "slots = 32\n");
  b.start();
  ASSERT_TRUE(comes_true([&] { return a.log().find("slots alike") != std::string::npos; }));
  b.stop();
  scratch_.write("conf", "slots = 16\n");
  b.start();
  EXPECT_TRUE(comes_true([&] { return b.log().find(" is up") != std::string::npos; })) << b.log();
  EXPECT_THAT(b.log(), Not(HasSubstr("cannot be used")));
}

TEST_F(LiveFoundTest, ADaemonThatHasItsTwinsNameSaysSo) {
  LiveDaemon a({"--peer", b_at_}, "twin", port_a_);
  LiveDaemon b({"--peer", at("127.0.0.1", port_a_)}, "twin", port_b_);
  RawTrainer asks(a.runtime_dir());
  ASSERT_TRUE(comes_true([&] { return peers_of(asks).peers(0).state() == "refused"; }));
  EXPECT_THAT(peers_of(asks).peers(0).reason(), HasSubstr("give each"));
}

}  // namespace
}  // namespace gradring::daemon
