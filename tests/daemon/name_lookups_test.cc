#include "daemon/control/peers/name_lookups.h"

#include <gmock/gmock.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <zmq.hpp>

#include "daemon/control/peers/peer_link.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

constexpr int kPatience = 10'000;  // milliseconds

// A name server that answers for some names when the test lets it, and for others at once.
class NameServer {
 public:
  NameLookups::Ask ask() {
    return [silent = silent_, asked = asked_](const std::string& name, bool) {
      ++*asked;
      if (name.starts_with("gone")) silent.wait();
      if (name.starts_with("no")) return NameLookups::Answer{"", "there is no such name"};
      return NameLookups::Answer{"127.0.0.1", ""};
    };
  }
  int asked() const { return *asked_; }
  void answer() { let_.set_value(); }

 private:
  std::promise<void> let_;
  std::shared_future<void> silent_ = let_.get_future().share();
  std::shared_ptr<std::atomic<int>> asked_ = std::make_shared<std::atomic<int>>(0);
};

std::optional<NameLookups::Answer> answer_of(NameLookups* names, const std::string& name) {
  for (;;) {
    if (auto answer = names->look_up(name, false)) return answer;
    pollfd news{names->event_fd(), POLLIN, 0};
    if (poll(&news, 1, kPatience) != 1) return std::nullopt;
    names->hear();
  }
}

TEST(NameLookups, AnswersOneNameWhileAnotherIsNotAnsweredAndAsksForItOnce) {
  NameServer server;
  NameLookups names(server.ask());
  for (int time = 0; time < 3; ++time) EXPECT_FALSE(names.look_up("gone.example", false));
  const auto here = answer_of(&names, "here.example");
  ASSERT_TRUE(here);
  EXPECT_EQ(here->host, "127.0.0.1");
  EXPECT_EQ(answer_of(&names, "none.example")->fault, "there is no such name");
  EXPECT_FALSE(names.look_up("gone.example", false));
  EXPECT_EQ(server.asked(), 3);
  server.answer();
  EXPECT_EQ(answer_of(&names, "gone.example")->host, "127.0.0.1");
  EXPECT_FALSE(names.look_up("gone.example", false)) << "it is asked for anew";
}

TEST(NameLookups, EndsWhileANameIsNotAnswered) {
  NameServer server;
  {
    NameLookups names(server.ask());
    for (int name = 0; name < 100; ++name) names.look_up("gone" + std::to_string(name), false);
  }
  server.answer();
}

TEST(NameLookups, AsksTheSystem) {
  EXPECT_EQ(NameLookups::ask("localhost", false).host, "127.0.0.1");
  EXPECT_THAT(NameLookups::ask("localhost", true).host, testing::AnyOf("::1", "127.0.0.1"));
  EXPECT_THAT(NameLookups::ask("a name of nobody", false).fault, HasSubstr("cannot be looked up"));
}

// libzmq has one thread here for all of them.
TEST(NameLookups, ALinkWhoseNameIsNotAnsweredKeepsNoOtherFromItsPeer) {
  NameServer server;
  NameLookups names(server.ask());
  zmq::context_t context(1);
  zmq::socket_t router(context, ZMQ_ROUTER);
  router.bind("tcp://127.0.0.1:*");
  const std::string end = router.get(zmq::sockopt::last_endpoint);
  const std::string port = end.substr(end.rfind(':'));
  PeerLink gone(1, "gone.example" + port), here(2, "here.example" + port);
  PeerLink::Dial dial;
  dial.context = &context;
  dial.names = &names;
  gone.dial(dial, 0);
  here.dial(dial, 0);
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
  std::optional<PeerLink::Happening> happening;
  while (!happening && std::chrono::steady_clock::now() < until) {
    gone.go_on(0);
    here.go_on(0);
    happening = here.next_happening();
  }
  EXPECT_EQ(happening, PeerLink::Happening::kConnected);
  EXPECT_TRUE(gone.open() && gone.awaits_address() && !gone.has_socket());
  EXPECT_THAT(gone.why_unanswered(), HasSubstr("gone.example cannot be looked up"));
  gone.drop("", 0);
  EXPECT_FALSE(gone.open() || gone.awaits_address());
  here.drop("", 0);
  server.answer();
}

}  // namespace
}  // namespace gradring::daemon
