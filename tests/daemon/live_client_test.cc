// One daemon and trainers that do everything wrong, in raw protocol. Whatever they do, they are
// answered and everybody else goes on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "proto/status.h"
#include "proto/verdict.h"
#include "proto/version.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/raw_trainer.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

int code_of(const wire::DaemonMessage& answer) { return static_cast<int>(answer.refused().code()); }

wire::StatusReport status_of(RawTrainer& trainer) {
  wire::ClientMessage query;
  query.mutable_query()->set_what(wire::Query::STATUS);
  return trainer.ask(query).reply().status();
}

uint64_t counter(const wire::StatusReport& status, const std::string& name) {
  for (const wire::Counter& counter : status.counters()) {
    if (counter.name() == name) return counter.value();
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

bool within(std::chrono::milliseconds time, const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

class LiveClientTest : public testing::Test {
 protected:
  // Two trainers of one job still add.
  void expect_service(const std::string& job) {
    RawTrainer a(daemon_.runtime_dir()), b(daemon_.runtime_dir());
    ASSERT_TRUE(form_job(job, {&a, &b}));
    const auto memory_a = a.allocate(4096), memory_b = b.allocate(4096);
    for (int i = 0; i < 16; ++i) {
      memory_a.data[i] = static_cast<float>(i);
      memory_b.data[i] = 100;
    }
    a.submit(RawTrainer::allreduce(memory_a, 16, 0));
    b.submit(RawTrainer::allreduce(memory_b, 16, 0));
    EXPECT_EQ(a.completion().verdict(), kOk);
    EXPECT_EQ(b.completion().verdict(), kOk);
    for (int i = 0; i < 16; ++i) {
      EXPECT_EQ(memory_a.data[i], 100 + static_cast<float>(i));
      EXPECT_EQ(memory_b.data[i], 100 + static_cast<float>(i));
    }
    EXPECT_TRUE(a.leave().has_left());
    EXPECT_TRUE(b.leave().has_left());
  }

  LiveDaemon daemon_;
};

TEST_F(LiveClientTest, TwoTrainersAddAndLeave) {
  expect_service("first");
  expect_service("first");
  RawTrainer asks(daemon_.runtime_dir());
  wire::ClientMessage query;
  query.mutable_query()->set_what(wire::Query::JOBS);
  const auto ended = [&] {
    const wire::JobsReport jobs = asks.ask(query).reply().jobs();
    EXPECT_EQ(jobs.jobs_size(), 2);
    return std::all_of(jobs.jobs().begin(), jobs.jobs().end(),
                       [](const wire::JobSummary& job) { return job.state() == "ended"; });
  };
  EXPECT_TRUE(within(5s, ended));
}

// ---- the attach socket ----

TEST_F(LiveClientTest, GarbageOnTheAttachSocketEndsThatConnectionOnly) {
  const std::vector<std::string> packets = {"x", std::string(1, '\0'), std::string(10000, '\xff'),
                                            "\x0a\x7f", std::string(4096, 'A')};
  for (const std::string& packet : packets) {
    RawAttach attach(daemon_.runtime_dir());
    ASSERT_TRUE(attach.connected());
    ASSERT_TRUE(attach.send(packet));
    const auto reply = attach.receive();
    ASSERT_TRUE(reply);
    EXPECT_THAT(reply->refused().message(), HasSubstr("malformed"));
    EXPECT_TRUE(attach.closed_by_daemon());
  }
  expect_service("after");
}

TEST_F(LiveClientTest, SegmentsBeforeHelloAndASecondHelloAreRefused) {
  RawAttach early(daemon_.runtime_dir());
  wire::AttachRequest allocate;
  allocate.mutable_allocate()->set_bytes(4096);
  early.send(allocate);
  EXPECT_TRUE(early.receive()->has_refused());
  EXPECT_TRUE(early.closed_by_daemon());

  RawAttach twice(daemon_.runtime_dir());
  EXPECT_TRUE(twice.hello(kClientProtocols.newest)->has_welcome());
  EXPECT_TRUE(twice.hello(kClientProtocols.newest)->has_refused());
  EXPECT_TRUE(twice.closed_by_daemon());
}

TEST_F(LiveClientTest, AnotherProtocolIsRefusedInWordsOnBothChannels) {
  RawAttach attach(daemon_.runtime_dir());
  const auto reply = attach.hello(kClientProtocols.newest + 1);
  ASSERT_TRUE(reply && reply->has_refused());
  EXPECT_EQ(reply->refused().code(), static_cast<uint32_t>(Code::kIncompatible));
  EXPECT_THAT(reply->refused().message(), HasSubstr("install the same release"));
  EXPECT_TRUE(attach.closed_by_daemon());

  RawTrainer trainer(daemon_.runtime_dir());
  wire::ClientMessage query;
  query.set_protocol(kClientProtocols.newest + 7);
  query.mutable_query()->set_what(wire::Query::STATUS);
  EXPECT_EQ(code_of(trainer.ask(query)), static_cast<int>(Code::kIncompatible));
}

TEST_F(LiveClientTest, MemoryBeyondTheLimitIsRefusedWithTheLimitsName) {
  RawTrainer trainer(daemon_.runtime_dir());
  wire::AttachRequest request;
  request.mutable_allocate()->set_request(3);
  request.mutable_allocate()->set_bytes(uint64_t{1} << 50);
  trainer.attach().send(request);
  const auto reply = trainer.attach().receive();
  ASSERT_TRUE(reply && reply->has_refused());
  EXPECT_EQ(reply->refused().request(), 3u);
  EXPECT_THAT(reply->refused().message(), HasSubstr("segment-limit"));
  EXPECT_NE(trainer.allocate(4096).data, nullptr) << "the session goes on";
}

// ---- the control socket ----

TEST_F(LiveClientTest, MalformedMessagesAreAnsweredAndAtLastEndTheSession) {
  RawTrainer victim(daemon_.runtime_dir());
  RawTrainer trainer(daemon_.runtime_dir());
  for (int i = 0; i < 15; ++i) {
    trainer.send_bytes(std::string("\xff\xff\xff\xff", 4));
    const auto answer = trainer.receive();
    ASSERT_TRUE(answer);
    EXPECT_THAT(answer->refused().message(), HasSubstr("malformed"));
  }
  EXPECT_EQ(counter(status_of(trainer), "client_messages_malformed"), 15u);
  trainer.send_bytes("");  // parses, and says nothing
  EXPECT_TRUE(trainer.receive()->has_refused()) << "no protocol number";
  trainer.send_bytes("\x08");  // a field that is cut off
  EXPECT_TRUE(trainer.attach().closed_by_daemon());
  EXPECT_EQ(status_of(victim).sessions(), 1u);
  expect_service("after");
}

TEST_F(LiveClientTest, AConnectionWithoutSessionMayOnlyAsk) {
  zmq::context_t context;
  zmq::socket_t dealer(context, ZMQ_DEALER);
  dealer.set(zmq::sockopt::linger, 0);
  dealer.set(zmq::sockopt::rcvtimeo, 10000);
  dealer.connect("ipc://" + daemon_.runtime_dir() + "/control.sock");
  const auto ask = [&dealer](wire::ClientMessage message) {
    message.set_protocol(kClientProtocols.newest);
    dealer.send(zmq::buffer(message.SerializeAsString()), zmq::send_flags::none);
    zmq::message_t body;
    wire::DaemonMessage answer;
    EXPECT_TRUE(dealer.recv(body));
    answer.ParseFromArray(body.data(), static_cast<int>(body.size()));
    return answer;
  };
  wire::ClientMessage join, query, nothing;
  join.mutable_join()->set_job("x");
  join.mutable_join()->set_size(1);
  EXPECT_EQ(code_of(ask(join)), static_cast<int>(Code::kAborted));
  query.mutable_query()->set_what(wire::Query::STATUS);
  EXPECT_EQ(ask(query).reply().status().state(), "ready");
  query.mutable_query()->set_what(static_cast<wire::Query::What>(77));
  EXPECT_TRUE(ask(query).has_refused());
  query.mutable_query()->set_what(wire::Query::JOB);
  query.mutable_query()->set_job("none such");
  EXPECT_EQ(code_of(ask(query)), static_cast<int>(Code::kNotFound));
  EXPECT_TRUE(ask(nothing).has_refused());
}

TEST_F(LiveClientTest, JoinsThatMakeNoSenseAreRefusedAtOnce) {
  RawTrainer trainer(daemon_.runtime_dir());
  EXPECT_TRUE(trainer.join("", 0, 1).has_refused());
  EXPECT_TRUE(trainer.join("job", 0, 0).has_refused());
  EXPECT_TRUE(trainer.join("job", 5, 4).has_refused());
  EXPECT_TRUE(trainer.join("job", 0, ~0u).has_refused());
  EXPECT_TRUE(trainer.join(std::string(100000, 'j'), 0, 1).has_refused());
  wire::ClientMessage message;
  message.mutable_join()->set_job("job");
  message.mutable_join()->set_size(1);
  message.mutable_join()->set_policy("sometimes");
  EXPECT_THAT(trainer.ask(message).refused().message(), HasSubstr("elastic"));
  EXPECT_TRUE(trainer.leave().has_refused());
  message.mutable_join()->clear_policy();
  for (const int ranks : {0, 1, 2}) {  // of the size said, but an incarnation of 3 bytes
    wire::Within& within = *message.mutable_join()->mutable_within();
    within.set_incarnation(ranks == 1 ? "abc" : std::string(16, 'i'));
    while (within.ranks_size() < ranks) within.add_ranks(0);
    EXPECT_THAT(trainer.ask(message).refused().message(), testing::HasSubstr("within another"));
  }
  EXPECT_TRUE(trainer.join("job", 0, 1).has_joined());
  EXPECT_TRUE(trainer.join("another", 0, 1).has_refused()) << "one job at a time";
}

TEST_F(LiveClientTest, TheSameRankTwiceIsRefusedAndNamesTheOther) {
  RawTrainer first(daemon_.runtime_dir()), second(daemon_.runtime_dir());
  first.begin_join("job", 0, 2);
  std::this_thread::sleep_for(50ms);
  const auto answer = second.join("job", 0, 2);
  ASSERT_TRUE(answer.has_refused());
  EXPECT_THAT(answer.refused().message(), HasSubstr(std::to_string(getpid())));
}

TEST_F(LiveClientTest, BadSubmissionsEndFailedAndGoodOnesGoOn) {
  RawTrainer trainer(daemon_.runtime_dir());
  ASSERT_TRUE(form_job("job", {&trainer}));
  const auto memory = trainer.allocate(4096);
  uint64_t sequence = 0;
  const auto told = [&](const std::function<void(wire::Operation&)>& spoil) {
    wire::Operation operation = RawTrainer::allreduce(memory, 16, sequence);
    spoil(operation);
    trainer.submit(operation);
    const wire::Completion completion = trainer.completion();
    EXPECT_EQ(completion.ticket(), operation.ticket());
    EXPECT_EQ(completion.verdict(), kFailed);
    EXPECT_EQ(completion.failure().cause(), static_cast<uint32_t>(Cause::kRefused));
    return completion.message();
  };
  using Op = wire::Operation&;
  EXPECT_THAT(told([](Op o) { o.mutable_input()->set_offset(~uint64_t{0} - 3); }),
              HasSubstr("beyond"));
  EXPECT_THAT(told([](Op o) { o.mutable_output()->set_offset(4096); }), HasSubstr("beyond"));
  EXPECT_THAT(told([](Op o) { o.mutable_signature()->set_count(1u << 30); }), HasSubstr("beyond"));
  EXPECT_THAT(told([](Op o) { o.mutable_signature()->set_dtype(99); }), HasSubstr("unknown"));
  EXPECT_THAT(told([](Op o) { o.mutable_input()->set_segment(12345); }), HasSubstr("12345"));
  EXPECT_EQ(told([](Op o) { o.mutable_input()->set_offset(1); }).find("malformed"),
            std::string::npos);

  trainer.submit(RawTrainer::allreduce(memory, 16, sequence));
  EXPECT_EQ(trainer.completion().verdict(), kOk);
  // The key is used up, whatever the ticket.
  wire::Operation again = RawTrainer::allreduce(memory, 16, sequence);
  again.set_ticket(77);
  trainer.submit(again);
  const wire::Completion twice = trainer.completion();
  EXPECT_EQ(twice.verdict(), kFailed);
  EXPECT_THAT(twice.message(), HasSubstr("twice"));
  trainer.submit(RawTrainer::allreduce(memory, 16, ++sequence));
  EXPECT_EQ(trainer.completion().verdict(), kOk);
}

TEST_F(LiveClientTest, AKeySubmittedTwiceWhileOpenIsRefusedOnce) {
  RawTrainer a(daemon_.runtime_dir()), b(daemon_.runtime_dir());
  ASSERT_TRUE(form_job("job", {&a, &b}));
  const auto memory_a = a.allocate(4096), memory_b = b.allocate(4096);
  a.submit(RawTrainer::allreduce(memory_a, 16, 0));
  wire::Operation again = RawTrainer::allreduce(memory_a, 16, 0);
  again.set_ticket(500);
  a.submit(again);
  const wire::Completion refused = a.completion();
  EXPECT_EQ(refused.ticket(), 500u);
  EXPECT_EQ(refused.verdict(), kFailed);
  b.submit(RawTrainer::allreduce(memory_b, 16, 0));
  EXPECT_EQ(a.completion().verdict(), kOk);
  EXPECT_EQ(b.completion().verdict(), kOk);
}

TEST_F(LiveClientTest, AJobBelongsToItsSession) {
  RawTrainer owner(daemon_.runtime_dir()), other(daemon_.runtime_dir());
  ASSERT_TRUE(form_job("mine", {&owner}));
  ASSERT_TRUE(form_job("yours", {&other}));
  const auto memory = other.allocate(4096);
  other.submit(RawTrainer::allreduce(memory, 16, 0), owner.job());
  const wire::Completion completion = other.completion();
  EXPECT_EQ(completion.verdict(), kFailed);
  EXPECT_THAT(completion.message(), HasSubstr("belongs to another session"));
  other.submit(RawTrainer::allreduce(memory, 16, 0), 999);
  EXPECT_EQ(other.completion().verdict(), kFailed);

  // Nor can the memory of another be named.
  const auto foreign = owner.allocate(4096);
  other.submit(RawTrainer::allreduce(foreign, 16, 0));
  EXPECT_THAT(other.completion().message(), HasSubstr("does not belong to this session"));
  wire::ClientMessage free;
  free.mutable_free()->set_segment(foreign.segment);
  EXPECT_EQ(code_of(other.ask(free)), static_cast<int>(Code::kNotFound));
  EXPECT_TRUE(owner.ask(free).has_freed());
}

TEST_F(LiveClientTest, MemoryInUseIsNotFreed) {
  RawTrainer a(daemon_.runtime_dir()), b(daemon_.runtime_dir());
  ASSERT_TRUE(form_job("job", {&a, &b}));
  const auto memory_a = a.allocate(4096), memory_b = b.allocate(4096);
  a.submit(RawTrainer::allreduce(memory_a, 16, 0));
  wire::ClientMessage free;
  free.mutable_free()->set_segment(memory_a.segment);
  EXPECT_THAT(a.ask(free).refused().message(), HasSubstr("in use"));
  b.submit(RawTrainer::allreduce(memory_b, 16, 0));
  EXPECT_EQ(a.completion().verdict(), kOk);
  EXPECT_TRUE(a.ask(free).has_freed());
}

TEST_F(LiveClientTest, RanksThatDisagreeAreBothNamedToAll) {
  RawTrainer a(daemon_.runtime_dir()), b(daemon_.runtime_dir());
  ASSERT_TRUE(form_job("job", {&a, &b}));
  const auto memory_a = a.allocate(4096), memory_b = b.allocate(4096);
  a.submit(RawTrainer::allreduce(memory_a, 16, 0));
  b.submit(RawTrainer::allreduce(memory_b, 17, 0));
  for (RawTrainer* trainer : {&a, &b}) {
    const wire::Completion completion = trainer->completion();
    EXPECT_EQ(completion.failure().cause(), static_cast<uint32_t>(Cause::kMismatch));
    EXPECT_THAT(completion.message(), HasSubstr("rank 0"));
    EXPECT_THAT(completion.message(), HasSubstr("rank 1"));
  }
}

// ---- numbers ----

TEST_F(LiveClientTest, TenThousandConnectsDisturbNobody) {
  RawTrainer a(daemon_.runtime_dir()), b(daemon_.runtime_dir());
  ASSERT_TRUE(form_job("steady", {&a, &b}));
  const auto memory_a = a.allocate(4096), memory_b = b.allocate(4096);
  std::vector<std::unique_ptr<RawAttach>> held;
  int refused = 0;
  uint64_t sequence = 0;
  auto slowest = 0ms;
  for (int i = 0; i < 10000; ++i) {
    auto attach = std::make_unique<RawAttach>(daemon_.runtime_dir());
    ASSERT_TRUE(attach->connected()) << i;
    if (i % 500 == 0) {
      const auto start = std::chrono::steady_clock::now();
      a.submit(RawTrainer::allreduce(memory_a, 16, sequence));
      b.submit(RawTrainer::allreduce(memory_b, 16, sequence++));
      ASSERT_EQ(a.completion().verdict(), kOk);
      ASSERT_EQ(b.completion().verdict(), kOk);
      slowest = std::max(slowest, std::chrono::duration_cast<std::chrono::milliseconds>(
                                      std::chrono::steady_clock::now() - start));
    }
    // Every fourth says hello and stays, as far as it is let.
    if (i % 4 != 0 || held.size() >= 1500) continue;
    const auto reply = attach->hello(kClientProtocols.newest);
    if (reply && reply->has_welcome()) {
      held.push_back(std::move(attach));
    } else if (reply) {
      EXPECT_THAT(reply->refused().message(), HasSubstr("already"));
      ++refused;
    }
  }
  EXPECT_LT(slowest, 2000ms);
  EXPECT_LE(held.size(), 512u);
  EXPECT_GT(held.size(), 300u);
  EXPECT_GT(refused, 0);
  EXPECT_LE(status_of(a).sessions(), 512u);
  held.clear();
  EXPECT_TRUE(within(20s, [&] { return status_of(a).sessions() == 2; }));
}

TEST_F(LiveClientTest, AConnectionThatSaysNothingIsClosed) {
  RawAttach silent(daemon_.runtime_dir());
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(silent.closed_by_daemon());
  EXPECT_LT(std::chrono::steady_clock::now() - start, 9s);
}

TEST_F(LiveClientTest, WhatGoesLeavesNothingBehind) {
  { RawTrainer warm(daemon_.runtime_dir()); }
  std::this_thread::sleep_for(200ms);
  const size_t before = daemon_.open_files();
  for (int round = 0; round < 20; ++round) {
    RawTrainer a(daemon_.runtime_dir()), b(daemon_.runtime_dir());
    ASSERT_TRUE(form_job("job", {&a, &b}));
    const auto memory = a.allocate(1 << 20);
    a.submit(RawTrainer::allreduce(memory, 1000, 0));  // never matched: both vanish
  }
  EXPECT_TRUE(within(10s, [&] { return daemon_.open_files() <= before; }));
  RawTrainer asks(daemon_.runtime_dir());
  EXPECT_TRUE(within(10s, [&] { return status_of(asks).sessions() == 1; }));
  const wire::StatusReport status = status_of(asks);
  EXPECT_EQ(status.jobs(), 0u);
  for (const wire::Limit& limit : status.limits()) {
    if (limit.name() == "segment-limit") {
      EXPECT_EQ(limit.used(), 0u);
    }
  }
  if (!kSanitized) {
    EXPECT_LT(status.rss_bytes(), 40u << 20);
  }
}

}  // namespace
}  // namespace gradring::daemon
