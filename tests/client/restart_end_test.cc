#include "tests/client/restart.h"

// Sessions that are not resumed after all, and how that ends.
namespace gradring::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// With a grace that a test can sit through.
class RestartEnds : public Restart {
 protected:
  static constexpr uint32_t kShortMs = 300;

  void SetUp() override {
    daemon_.set([](Script& script) {
      script.complete = false;
      script.restart_grace_ms = kShortMs;
    });
    comm_ = open(daemon_);
  }
  void expect_the_end(const std::string& words, gradring_code code) {
    void* memory = nullptr;
    EXPECT_EQ(gradring_alloc(comm_.get(), 64, &memory), code);
    EXPECT_THAT(gradring_last_error(), HasSubstr(words));
    const auto start = Clock::now();
    comm_.reset();
    EXPECT_LT(ms_since(start), kSoonMs);
  }
};

TEST_F(RestartEnds, IfTheDaemonDoesNotComeBackInTime) {
  for (const Listeners listeners : {Listeners::kKept, Listeners::kGone}) {
    submits_ = daemon_.wait_for_messages(wire::ClientMessage::kSubmit, 0).size();
    const gradring_request request = submit_barrier();
    daemon_.die(listeners);
    const gradring_result result =
        wait_failed(request, kShortMs + kMarginMs, kShortMs + kMarginMs + kSoonMs);
    EXPECT_EQ(result.cause, static_cast<uint32_t>(Cause::kPeerLost));
    EXPECT_STREQ(result.blamed_node, "fake");
    EXPECT_THAT(
        result.message,
        AllOf(HasSubstr("node fake went away and did not come back within its restart-grace of "
                        "0.3 s"),
              HasSubstr("`gradringd --runtime-dir " + daemon_.runtime_dir() + "`")));
    expect_the_end("did not come back", GRADRING_ERR_UNAVAILABLE);
    daemon_.come_back();
    comm_ = open(daemon_);
  }
}

TEST_F(RestartEnds, IfItDoesNotTakeTheSessionBack) {
  const gradring_request request = submit_barrier();
  daemon_.set([](Script& script) {
    script.refuse_hello = refusal(Code::kNotFound, "session 1 ended before the restart");
  });
  restart();
  const gradring_result result = wait_failed(request);
  EXPECT_EQ(result.cause, static_cast<uint32_t>(Cause::kRefused));
  EXPECT_STREQ(result.message, "session 1 ended before the restart");
  expect_the_end("ended before", GRADRING_ERR_NOT_FOUND);
}

TEST_F(RestartEnds, IfItDoesNotOpenTheSession) {
  const gradring_request request = submit_barrier();
  daemon_.set([](Script& script) {
    script.refuse_open = refusal(Code::kPermissionDenied, "the secret does not fit");
  });
  restart();
  EXPECT_STREQ(wait_failed(request).message, "the secret does not fit");
  expect_the_end("does not fit", GRADRING_ERR_PERMISSION);
}

TEST_F(RestartEnds, IfItWelcomesUsAndThenSaysNothing) {
  const gradring_request request = submit_barrier();
  daemon_.set([](Script& script) { script.answer_open = false; });
  restart();
  EXPECT_THAT(
      wait_failed(request, kShortMs + kMarginMs - 100, kShortMs + 2 * kMarginMs + kSoonMs).message,
      HasSubstr("did not come back"));
}

TEST_F(RestartEnds, IfItKnowsNothingOfUs) {
  const gradring_request request = submit_barrier();
  daemon_.forget();
  restart();
  EXPECT_THAT(wait_failed(request).message, HasSubstr("knows nothing of this session"));
}

TEST_F(RestartEnds, IfItIsAnotherNodeNow) {
  const gradring_request request = submit_barrier();
  daemon_.set([](Script& script) { script.node = "impostor"; });
  restart();
  EXPECT_THAT(wait_failed(request).message,
              HasSubstr("calls its node impostor, and before it was fake"));
}

TEST_F(RestartEnds, IfItSpeaksAnotherProtocol) {
  const gradring_request request = submit_barrier();
  daemon_.set([](Script& script) { script.protocol = kClientProtocols.newest + 1; });
  restart();
  EXPECT_THAT(wait_failed(request).message, HasSubstr("speaks client protocol 2"));
  expect_the_end("install versions that fit", GRADRING_ERR_INCOMPATIBLE);
}

TEST_F(RestartEnds, IfItTalksNonsenseOnTheAttachSocket) {
  const gradring_request request = submit_barrier();
  daemon_.set([](Script& script) { script.answer_hello_with = "\xff\xff\xff\xff no packet"; });
  restart();
  const gradring_result result = wait_failed(request);
  EXPECT_EQ(result.cause, static_cast<uint32_t>(Cause::kProtocol));
  EXPECT_THAT(result.message, HasSubstr("cannot be read"));
}

TEST_F(RestartEnds, IfItAnswersTheHelloWithAnythingElse) {
  const gradring_request request = submit_barrier();
  wire::AttachReply reply;
  reply.mutable_segment()->set_request(1);
  daemon_.set([&](Script& script) { script.answer_hello_with = reply.SerializeAsString(); });
  restart();
  EXPECT_THAT(wait_failed(request).message, HasSubstr("answered the hello with something else"));
}

TEST_F(RestartEnds, IfItTalksNonsenseOnTheControlChannel) {
  const gradring_request request = submit_barrier();
  daemon_.set([](Script& script) { script.answer_open_with = "\xff\xff\xff\xff no message"; });
  restart();
  const gradring_result result = wait_failed(request);
  EXPECT_EQ(result.cause, static_cast<uint32_t>(Cause::kProtocol));
  EXPECT_THAT(result.message, HasSubstr("cannot be read"));
}

TEST_F(RestartEnds, IfItSpeaksBeforeTheSessionIsOpen) {
  const gradring_request request = submit_barrier();
  daemon_.set(
      [&](Script& script) { script.answer_open_with = end_of(request).SerializeAsString(); });
  restart();
  EXPECT_THAT(wait_failed(request).message, HasSubstr("before the session was open"));
}

TEST_F(RestartEnds, IfItRefusesWhatIsSubmittedAgain) {
  const gradring_request request = submit_barrier();
  daemon_.set([](Script& script) {
    script.refuse_submit = refusal(Code::kAborted, "no session is open on this connection");
  });
  restart();
  EXPECT_STREQ(wait_failed(request).message, "no session is open on this connection");
  expect_the_end("no session is open", GRADRING_ERR_FAILED);
}

// Then it will not be back for us, whatever its grace.
TEST_F(RestartEnds, IfItSaidBeforeThatTheJobIsOver) {
  for (const bool said_last : {false, true}) {
    daemon_.set([](Script& script) { script.refuse_hello.reset(); });
    comm_ = open(daemon_);
    const gradring_request request = submit(comm_, barrier_op());
    ++submits_;
    ASSERT_EQ(operations().size(), submits_);
    wire::DaemonMessage closed;
    closed.mutable_closed()->set_job(kFakeJob);
    closed.mutable_closed()->set_message("the daemon was told to stop");
    daemon_.send(closed);
    if (!said_last) {
      EXPECT_EQ(gradring_wait(comm_.get(), request, 100, nullptr), GRADRING_ERR_DEADLINE);
    }
    const size_t hellos = daemon_.wait_for_hellos(0).size();
    // Where the end of the connection overtakes the words, its next life knows nothing of us.
    daemon_.set([](Script& script) { script.refuse_hello = refusal(Code::kNotFound, "who?"); });
    daemon_.hang_up();
    EXPECT_STREQ(wait_failed(request).message, "the daemon was told to stop");
    if (!said_last) {
      EXPECT_EQ(daemon_.wait_for_hellos(0).size(), hellos);
    }
  }
}

// A refusal to resume that overtakes them on the other channel does not count.
TEST_F(RestartEnds, WithTheLastWordsOnTheOldConnection) {
  const gradring_request request = submit_barrier();
  daemon_.set([](Script& script) { script.refuse_hello = refusal(Code::kNotFound, "who?"); });
  std::thread trainer(
      [&] { EXPECT_STREQ(wait_failed(request).message, "the daemon was told to stop"); });
  daemon_.hang_up();
  EXPECT_EQ(daemon_.wait_for_hellos(2).size(), 2u);
  wire::DaemonMessage closed;
  closed.mutable_closed()->set_job(kFakeJob);
  closed.mutable_closed()->set_message("the daemon was told to stop");
  daemon_.send(closed);
  trainer.join();
}

// A restart within a restart begins another grace, and the new daemon's own counts.
TEST_F(RestartEnds, OnlyAfterTheGraceThatWasToldLast) {
  const gradring_request request = submit_barrier();
  daemon_.set([](Script& script) {
    script.answer_open = false;
    script.restart_grace_ms = 20'000;
  });
  std::thread trainer([&] { wait_good(request); });
  restart();
  ASSERT_EQ(daemon_.wait_for_messages(wire::ClientMessage::kOpen, 2).size(), 2u);
  daemon_.die(Listeners::kGone);
  std::this_thread::sleep_for(std::chrono::milliseconds(kShortMs + kMarginMs + 300));
  daemon_.set([](Script& script) { script.answer_open = true; });
  daemon_.come_back();
  submitted_again();
  daemon_.complete(operations().at(0));
  trainer.join();
}

TEST_F(RestartEnds, AtOnceIfTheNewDaemonKnowsNoGraceAndDiesAsWell) {
  const gradring_request request = submit_barrier();
  daemon_.set([](Script& script) {
    script.answer_open = false;
    script.restart_grace_ms = 0;
  });
  std::thread trainer([&] {
    EXPECT_THAT(wait_failed(request, 0, 2 * kSoonMs).message, HasSubstr("went away; start it"));
  });
  restart();
  ASSERT_EQ(daemon_.wait_for_messages(wire::ClientMessage::kOpen, 2).size(), 2u);
  daemon_.die();
  trainer.join();
}

// A trainer that computes does not look, and the daemon may be back long before it does.
TEST_F(RestartEnds, NotBecauseNobodyLookedInTime) {
  const gradring_request request = submit_barrier();
  daemon_.die(Listeners::kGone);
  EXPECT_EQ(gradring_wait(comm_.get(), request, 20, nullptr), GRADRING_ERR_DEADLINE);
  std::this_thread::sleep_for(std::chrono::milliseconds(kShortMs + kMarginMs + 800));
  daemon_.come_back();
  drive(request);
  daemon_.complete(operations().at(0));
  wait_good(request);
}

}  // namespace
}  // namespace gradring::test
