// Whose a session is: of the process that attached, with its secret, by the last connection that it
// opened it by.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <zmq.hpp>

#include "proto/status.h"
#include "proto/version.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/raw_trainer.h"

namespace gradring::daemon {
namespace {

using namespace std::chrono_literals;

wire::ClientMessage opening_of(const RawTrainer& owner) {
  wire::ClientMessage open;
  open.set_protocol(kClientProtocols.newest);
  open.mutable_open()->set_session(owner.session());
  open.mutable_open()->set_secret(owner.secret());
  return open;
}

bool is_refused(const wire::DaemonMessage& answer, Code code) {
  return answer.has_refused() && answer.refused().code() == static_cast<uint32_t>(code);
}

class LiveSessionTest : public testing::Test {
 protected:
  LiveDaemon daemon_;
};

TEST_F(LiveSessionTest, ASessionOpensOnlyWithItsSecret) {
  RawTrainer owner(daemon_.runtime_dir());
  RawTrainer thief(daemon_.runtime_dir());
  wire::ClientMessage open = opening_of(owner);
  for (const std::string& secret : {std::string(), std::string("x"), owner.secret() + "x",
                                    std::string(32, '\0'), owner.secret().substr(0, 31)}) {
    open.mutable_open()->set_secret(secret);
    EXPECT_TRUE(is_refused(thief.ask(open), Code::kPermissionDenied));
  }
  open.mutable_open()->set_session(owner.session() + 1);
  EXPECT_TRUE(is_refused(thief.ask(open), Code::kNotFound));
}

TEST_F(LiveSessionTest, AConnectionThatWasGivenUpDoesNotTakeTheSessionFromALaterOne) {
  RawTrainer late(daemon_.runtime_dir());
  RawTrainer owner(daemon_.runtime_dir());
  wire::ClientMessage open = opening_of(owner);
  EXPECT_TRUE(owner.ask(open).has_opened()) << "again, with a higher number";
  open.set_request(1);
  late.send_bytes(open.SerializeAsString());
  EXPECT_TRUE(is_refused(late.answer_to(1), Code::kAborted));
  EXPECT_TRUE(owner.join("job", 0, 1).has_joined());
}

TEST_F(LiveSessionTest, WhatAConnectionThatWasGivenUpAskedIsNotAnsweredOnALaterOne) {
  RawTrainer given_up(daemon_.runtime_dir());
  RawTrainer owner(daemon_.runtime_dir());
  wire::ClientMessage open = opening_of(owner);
  kill(daemon_.pid(), SIGSTOP);  // so that it reads both at once
  open.set_request(2);
  given_up.send_bytes(open.SerializeAsString());
  std::this_thread::sleep_for(50ms);
  open.set_request(3);
  owner.send_bytes(open.SerializeAsString());
  std::this_thread::sleep_for(50ms);
  kill(daemon_.pid(), SIGCONT);
  EXPECT_TRUE(owner.answer_to(3).has_opened());
  EXPECT_TRUE(owner.join("job", 0, 1).has_joined()) << "by a request with the number 2";
}

TEST_F(LiveSessionTest, AnotherProcessCannotUseASessionEvenWithTheSecret) {
  RawTrainer owner(daemon_.runtime_dir());
  const pid_t child = fork();
  if (child == 0) {
    const wire::ClientMessage open = opening_of(owner);
    zmq::context_t context;
    zmq::socket_t dealer(context, ZMQ_DEALER);
    dealer.set(zmq::sockopt::linger, 0);
    dealer.set(zmq::sockopt::rcvtimeo, 10000);
    dealer.connect("ipc://" + daemon_.runtime_dir() + "/control.sock");
    dealer.send(zmq::buffer(open.SerializeAsString()), zmq::send_flags::none);
    zmq::message_t body;
    wire::DaemonMessage answer;
    const bool answered =
        dealer.recv(body) && answer.ParseFromArray(body.data(), static_cast<int>(body.size()));
    _exit(answered && is_refused(answer, Code::kPermissionDenied) ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(owner.join("mine", 0, 1).has_joined());
}

}  // namespace
}  // namespace gradring::daemon
