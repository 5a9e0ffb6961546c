// What is asked of all nodes, against a daemon that is played by the test and passes on as a real
// one does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>
#include <zmq.hpp>

#include "tests/tools/process.h"
#include "tools/ctl/ask.h"

namespace gradring::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kPassedOnMost = 256;

// Has node "here"; what peers are asked it answers once no more is asked, but for mute ones.
class FakeRing {
 public:
  explicit FakeRing(std::map<std::string, std::string> states)
      : states_(std::move(states)), socket_(context_, zmq::socket_type::router) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::rcvtimeo, 50);
    socket_.set(zmq::sockopt::sndhwm, 0);
    socket_.set(zmq::sockopt::rcvhwm, 0);
    socket_.bind("ipc://" + folder_.path() + "/control.sock");
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeRing() {
    over_ = true;
    thread_.join();
  }
  const std::string& runtime_dir() const { return folder_.path(); }

 private:
  void serve() {
    while (!over_) {
      zmq::message_t identity, frame;
      if (socket_.recv(identity) && socket_.recv(frame)) {
        wire::ClientMessage message;
        ASSERT_TRUE(message.ParseFromArray(frame.data(), static_cast<int>(frame.size())));
        take(identity.to_string(), message);
        continue;
      }
      for (const auto& [asker, answer] : passed_on_) send(asker, answer);
      passed_on_.clear();
    }
  }

  void take(const std::string& asker, const wire::ClientMessage& message) {
    const wire::Query& query = message.query();
    wire::DaemonMessage answer;
    answer.set_request(message.request());
    const bool full = passed_on_.size() >= kPassedOnMost;
    const bool mute = states_.contains(query.node()) && states_[query.node()] == "suspect";
    if (!query.node().empty() && (full || mute)) {
      answer.mutable_refused()->set_code(
          static_cast<uint32_t>(full ? Code::kResourceExhausted : Code::kDeadlineExceeded));
      answer.mutable_refused()->set_message(full ? "too many queries at once"
                                                 : "it did not answer");
    } else {
      fill(query, answer.mutable_reply());
    }
    if (query.node().empty() || full) {
      send(asker, answer);
    } else {
      passed_on_.emplace_back(asker, answer);
    }
  }

  void fill(const wire::Query& query, wire::QueryReply* reply) {
    const std::string node = query.node().empty() ? "here" : query.node();
    if (query.what() == wire::Query::SET) {
      reply->mutable_set()->set_node(node);
      reply->mutable_set()->set_incarnation("abc");
    } else if (query.what() == wire::Query::JOB) {
      for (const char* silent : {"lost", "suspect"}) reply->mutable_job()->add_silent_nodes(silent);
    } else if (query.what() == wire::Query::PEERS) {
      for (const auto& [peer, state] : states_) {
        wire::PeerReport* report = reply->mutable_peers()->add_peers();
        report->set_node(peer);
        report->set_state(state);
        report->set_reason("as the test wants it");
      }
    } else {
      reply->mutable_status()->set_node(node);
    }
  }

  void send(const std::string& asker, const wire::DaemonMessage& answer) {
    socket_.send(zmq::buffer(asker), zmq::send_flags::sndmore);
    socket_.send(zmq::buffer(answer.SerializeAsString()), zmq::send_flags::none);
  }

  std::map<std::string, std::string> states_;
  TemporaryFolder folder_;
  zmq::context_t context_{1};
  zmq::socket_t socket_;
  std::vector<std::pair<std::string, wire::DaemonMessage>> passed_on_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

std::map<std::string, std::string> of_each_state() {
  return {{"away", "away"},
          {"new", "connecting"},
          {"lost", "lost"},
          {"suspect", "suspect"},
          {"up", "up"}};
}

wire::Query node_query() {
  wire::Query query;
  query.set_what(wire::Query::STATUS);
  return query;
}

TEST(AllNodes, AreAlsoThoseThatSayNothingJustNow) {
  FakeRing ring(of_each_state());
  auto questions = Questions::open(ring.runtime_dir());
  ASSERT_TRUE(questions);
  std::vector<std::string> missing;
  const auto replies = ask_all_nodes(*questions, node_query(), &missing);
  ASSERT_TRUE(replies);
  ASSERT_EQ(replies->size(), 3u);
  EXPECT_EQ((*replies)[0].node, "here");
  EXPECT_EQ((*replies)[1].node, "suspect");
  EXPECT_EQ((*replies)[1].reply.error().code(), Code::kDeadlineExceeded);
  EXPECT_EQ((*replies)[2].reply->status().node(), "up");
  EXPECT_THAT(missing, ElementsAre("node away is away and was not asked: as the test wants it",
                                   "node lost is lost and was not asked: as the test wants it"));
}

TEST(AllNodes, MayBeMoreThanADaemonPassesOnAtATime) {
  std::map<std::string, std::string> peers;
  for (int i = 0; i < 600; ++i) peers["n" + std::to_string(i)] = "up";
  FakeRing ring(peers);
  auto questions = Questions::open(ring.runtime_dir());
  ASSERT_TRUE(questions);
  const auto replies = ask_all_nodes(*questions, node_query());
  ASSERT_TRUE(replies);
  ASSERT_EQ(replies->size(), 601u);
  for (const NodeReply& one : *replies) {
    ASSERT_TRUE(one.reply) << one.node << ": " << one.reply.error().message();
    EXPECT_EQ(one.reply->status().node(), one.node);
  }
}

TEST(AllNodes, OfAJobAreNamedWhereNothingIsSet) {
  FakeRing ring(of_each_state());
  const auto outcome =
      run({GRADRINGCTL, "--runtime-dir", ring.runtime_dir(), "set", "st", "weight=7"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("node suspect: it did not answer"));
  EXPECT_THAT(outcome.out, HasSubstr("node lost: it has ranks of the job, and could not be asked"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("suspect: it has ranks")));
}

TEST(Names, ThatAreNoUtf8AreRefusedInWords) {
  FakeRing ring(of_each_state());
  const auto told = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {GRADRINGCTL, "--runtime-dir", ring.runtime_dir()});
    const auto outcome = run(words);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.out;
    EXPECT_THAT(outcome.err, Not(HasSubstr("protobuf")));
    return outcome.err;
  };
  EXPECT_THAT(told({"job", "caf\xe9"}),
              HasSubstr("no job is called \"caf\\xe9\", which is not UTF-8"));
  EXPECT_THAT(told({"--node", "\xff", "status"}), HasSubstr("no node is called \"\\xff\""));
  EXPECT_THAT(told({"topology", "--replay", "\xff"}), HasSubstr("rename the folder"));
  EXPECT_THAT(told({"drain", "--timeout", "\xff"}), HasSubstr("('\\xff')"));
}

TEST(AllNodes, ThatTheScreenShowsNothingOfAreNamed) {
  FakeRing ring(of_each_state());
  const auto outcome =
      run({GRADRINGCTL, "--runtime-dir", ring.runtime_dir(), "top", "--once", "--all"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("5 nodes, 0 ready, 3 silent"));
  for (const char* told :
       {"! node suspect: it did not answer",
        "! node away is away and was not asked: as the test wants it", "! node lost is lost"}) {
    EXPECT_THAT(outcome.out, HasSubstr(told));
  }
}

TEST(AllNodes, ThatSayNothingAreNotAskedForTheScreenOfOne) {
  FakeRing ring(of_each_state());
  const auto outcome = run({GRADRINGCTL, "--runtime-dir", ring.runtime_dir(), "top", "--once"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("suspect")) << "is seen among its links";
  EXPECT_THAT(outcome.out, Not(HasSubstr("did not answer")));
}

TEST(AllNodes, ThatTellNoEventsAndNoRatesAreNamed) {
  FakeRing ring(of_each_state());
  using Words = std::vector<std::string>;
  for (const Words& command : {Words{"events", "--all"}, Words{"bandwidth", "--seconds", "0.5"}}) {
    Words words = {GRADRINGCTL, "--runtime-dir", ring.runtime_dir()};
    words.insert(words.end(), command.begin(), command.end());
    const auto outcome = run(words);
    EXPECT_EQ(outcome.exit_code, 1) << command[0];
    for (const char* told : {"it did not answer", "node away is away", "node lost is lost"}) {
      EXPECT_THAT(outcome.out, HasSubstr(told)) << command[0];
    }
    EXPECT_THAT(outcome.out, Not(HasSubstr("no peers"))) << command[0];
  }
}

TEST(AllNodes, ThatWereNeverMetAreNamedByWhoMeasures) {
  FakeRing ring({{"new", "connecting"}, {"other", "refused"}});
  const auto outcome =
      run({GRADRINGCTL, "--runtime-dir", ring.runtime_dir(), "bandwidth", "--matrix"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out,
            "no other node could be asked, so there is nothing to measure\n\n"
            "! peer new is connecting: as the test wants it\n"
            "! peer other is refused: as the test wants it\n");
}

TEST(AllNodes, ThatAreNotTracedAreNamed) {
  FakeRing ring(of_each_state());
  const auto outcome = run({GRADRINGCTL, "--runtime-dir", ring.runtime_dir(), "trace", "start"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("tracing on 2 nodes"));
  for (const char* told : {"it did not answer", "node away is away", "node lost is lost"}) {
    EXPECT_THAT(outcome.out, HasSubstr(told));
  }
}

}  // namespace
}  // namespace gradring::tools
