// gradringctl against a daemon that is played by the test, and against none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <thread>
#include <zmq.hpp>

#include "proto/version.h"
#include "tests/sanitized.h"
#include "tests/tools/process.h"
#include "tests/tools/schema.h"
#include "tools/ctl/ask.h"
#include "tools/ctl/keygen.h"

namespace gradring::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using Clock = std::chrono::steady_clock;

// Answers one question with whatever bytes the function makes of it, nothing if they are empty.
class FakeDaemon {
 public:
  using Behaviour = std::function<std::string(const wire::ClientMessage&)>;

  explicit FakeDaemon(Behaviour behaviour)
      : socket_(context_, zmq::socket_type::router), behaviour_(std::move(behaviour)) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.bind("ipc://" + folder_.path() + "/control.sock");
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeDaemon() { thread_.join(); }
  const std::string& runtime_dir() const { return folder_.path(); }

 private:
  void serve() {
    socket_.set(zmq::sockopt::rcvtimeo, 5000);
    zmq::message_t identity, frame;
    if (!socket_.recv(identity) || !socket_.recv(frame)) return;
    wire::ClientMessage message;
    ASSERT_TRUE(message.ParseFromArray(frame.data(), static_cast<int>(frame.size())));
    const std::string answer = behaviour_(message);
    if (answer.empty()) return;
    socket_.send(identity, zmq::send_flags::sndmore);
    // It is gone as soon as that is out.
    socket_.set(zmq::sockopt::linger, 1000);
    socket_.send(zmq::buffer(answer), zmq::send_flags::none);
    socket_.close();
  }

  TemporaryFolder folder_;
  zmq::context_t context_{1};
  zmq::socket_t socket_;
  Behaviour behaviour_;
  std::thread thread_;
};

std::string status_reply(const wire::ClientMessage& message) {
  EXPECT_EQ(message.protocol(), kClientProtocols.newest);
  EXPECT_EQ(message.query().what(), wire::Query::STATUS);
  wire::DaemonMessage answer;
  answer.set_request(message.request());
  auto* status = answer.mutable_reply()->mutable_status();
  status->set_node("a");
  status->set_state("ready");
  return answer.SerializeAsString();
}

wire::Query status_query() {
  wire::Query query;
  query.set_what(wire::Query::STATUS);
  return query;
}

TEST(Ask, BringsTheAnswer) {
  FakeDaemon daemon(status_reply);
  const auto reply = ask(Context{daemon.runtime_dir()}, status_query());
  ASSERT_TRUE(reply) << reply.error().message();
  EXPECT_EQ(reply->status().node(), "a");
}

// libzmq's thread may see the answer and the end before we read either.
TEST(Ask, BringsTheAnswerOfADaemonThatEnds) {
  for (int round = 0; round < 50; ++round) {
    FakeDaemon daemon(status_reply);
    const auto reply = ask(Context{daemon.runtime_dir()}, status_query());
    ASSERT_TRUE(reply) << "round " << round << ": " << reply.error().message();
  }
}

TEST(Ask, BringsARefusalInItsWords) {
  FakeDaemon daemon([](const wire::ClientMessage&) {
    wire::DaemonMessage answer;
    answer.mutable_refused()->set_code(static_cast<uint32_t>(Code::kNotFound));
    answer.mutable_refused()->set_message("there is no job \"x\x1b\"");
    return answer.SerializeAsString();
  });
  const auto reply = ask(Context{daemon.runtime_dir()}, status_query());
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), Code::kNotFound);
  EXPECT_EQ(reply.error().message(), "there is no job \"x\\x1b\"");
}

TEST(Ask, DoesNotTrustTheAnswer) {
  for (const std::string& bytes : {std::string("\xff\xff garbage"), std::string("\x08\x01")}) {
    FakeDaemon daemon([&](const wire::ClientMessage&) { return bytes; });
    const auto reply = ask(Context{daemon.runtime_dir()}, status_query());
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error().code(), Code::kIncompatible);
  }
}

TEST(Ask, GivesUpAfterThreeSeconds) {
  FakeDaemon daemon([](const wire::ClientMessage&) { return ""; });
  const auto begin = Clock::now();
  const auto reply = ask(Context{daemon.runtime_dir()}, status_query());
  const auto waited = Clock::now() - begin;
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), Code::kDeadlineExceeded);
  EXPECT_GE(waited, std::chrono::milliseconds(2500));
  EXPECT_LE(waited, std::chrono::milliseconds(4500));
}

TEST(Ask, SaysAtOnceThatNoDaemonIsThere) {
  TemporaryFolder folder;
  const auto begin = Clock::now();
  const auto reply = ask(Context{folder.path()}, status_query());
  EXPECT_LE(Clock::now() - begin, std::chrono::seconds(1));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), Code::kUnavailable);
  EXPECT_THAT(reply.error().message(), HasSubstr(folder.path() + "/control.sock"));
  EXPECT_THAT(reply.error().message(), HasSubstr("gradringd --runtime-dir " + folder.path()));
}

TEST(Ask, SaysAtOnceThatTheDaemonHasEnded) {
  TemporaryFolder folder;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = folder.path() + "/control.sock";
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  close(fd);  // the file stays, as after a kill -9
  const auto begin = Clock::now();
  const auto reply = ask(Context{folder.path()}, status_query());
  EXPECT_LE(Clock::now() - begin, std::chrono::seconds(1));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), Code::kUnavailable);
  EXPECT_THAT(reply.error().message(), HasSubstr("the daemon has ended"));
}

TEST(Ask, RefusesAPathThatIsTooLong) {
  const auto reply = ask(Context{"/tmp/" + std::string(120, 'x')}, status_query());
  ASSERT_FALSE(reply);
  EXPECT_THAT(reply.error().message(), HasSubstr("--runtime-dir"));
}

TEST(Keygen, WritesAPairThatOnlyItsOwnerCanRead) {
  TemporaryFolder folder;
  const mode_t before = umask(0);  // the mode must not hang on it
  const auto files = make_keys(folder.path(), "node-1", "10.0.0.1:7300");
  umask(before);
  ASSERT_TRUE(files) << files.error().message();
  struct stat info {};
  ASSERT_EQ(stat(files->secret_file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  ASSERT_EQ(stat(files->public_file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0644u);

  std::string comment, name, equals, quoted, secret, node, address, public_key;
  std::ifstream file(files->secret_file);
  std::getline(file, comment);
  file >> name >> equals >> quoted;
  EXPECT_EQ(name + equals + quoted, "public=\"" + files->public_key + "\"");
  file >> name >> equals >> quoted;
  EXPECT_EQ(name + equals, "secret=");
  ASSERT_EQ(quoted.size(), 42u);
  secret = quoted.substr(1, 40);
  std::ifstream(files->public_file) >> node >> address >> public_key;
  EXPECT_EQ(node, "node-1");
  EXPECT_EQ(address, "10.0.0.1:7300");
  EXPECT_EQ(public_key, files->public_key);
  char derived[41];
  ASSERT_EQ(zmq_curve_public(derived, secret.c_str()), 0);
  EXPECT_EQ(public_key, derived) << "the two files do not belong together";
}

TEST(Keygen, NeverOverwrites) {
  TemporaryFolder folder;
  ASSERT_TRUE(make_keys(folder.path(), "a", "a:7300"));
  const auto again = make_keys(folder.path(), "a", "a:7300");
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message(), HasSubstr("a.key exists already"));
  unlink((folder.path() + "/a.key").c_str());
  EXPECT_FALSE(make_keys(folder.path(), "a", "a:7300")) << "a.pub was still there";
  EXPECT_NE(access((folder.path() + "/a.key").c_str(), F_OK), 0) << "half a pair was left behind";
}

TEST(Keygen, RefusesNamesThatArePaths) {
  TemporaryFolder folder;
  for (const char* bad : {"", "../a", ".hidden", "a/b", "two words", "tab\t", "-o"}) {
    EXPECT_FALSE(make_keys(folder.path(), bad, "a:7300")) << bad;
  }
  for (const char* bad :
       {"no-port", ":7300", "a:", "a:0", "a:65536", "a:7300x", "[::1", "[::1:7300"}) {
    EXPECT_FALSE(make_keys(folder.path(), "a", bad)) << bad;
  }
}

TEST(Ctl, ExitCodesAreAsStated) {
  TemporaryFolder empty;
  const std::string directory = "--runtime-dir=" + empty.path();
  EXPECT_EQ(run({GRADRINGCTL, "--help"}).exit_code, 0);
  const auto of_one = run({GRADRINGCTL, "job", "--help"});
  EXPECT_EQ(of_one.exit_code, 0);
  EXPECT_THAT(of_one.out, HasSubstr("job NAME"));
  EXPECT_THAT(of_one.out, Not(HasSubstr("support-bundle [")));
  EXPECT_EQ(run({GRADRINGCTL}).exit_code, 2);
  EXPECT_EQ(run({GRADRINGCTL, "frobnicate"}).exit_code, 2);
  EXPECT_THAT(run({GRADRINGCTL, "--typo", "status"}).err, HasSubstr("no option \"--typo\""));
  EXPECT_EQ(run({GRADRINGCTL, directory, "job"}).exit_code, 2);
  EXPECT_EQ(run({GRADRINGCTL, directory, "status", "too", "many"}).exit_code, 2);
  EXPECT_EQ(run({GRADRINGCTL, directory, "keygen", "--typo"}).exit_code, 2);
  for (const char* command : {"status", "peers", "jobs"}) {
    const auto outcome = run({GRADRINGCTL, directory, command});
    EXPECT_EQ(outcome.exit_code, 3) << command;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("gradringd --runtime-dir"));
  }
  EXPECT_EQ(run({"GRADRING_RUNTIME_DIR=" + empty.path(), GRADRINGCTL, "job", "x"}).exit_code, 3);
  for (const std::vector<std::string>& bad :
       {std::vector<std::string>{"one", "two"}, {"--last"}, {"--last", "-1"}, {"--typo"}}) {
    std::vector<std::string> words = {GRADRINGCTL, directory, "flight-recorder"};
    words.insert(words.end(), bad.begin(), bad.end());
    EXPECT_EQ(run(words).exit_code, 2) << bad[0];
  }
  EXPECT_EQ(run({GRADRINGCTL, directory, "trace", "dump", "-o", "-"}).exit_code, 2);
  const auto outcome = run({GRADRINGCTL, directory, "flight-recorder"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("no flight recorder in " + empty.path()));
  std::ofstream(empty.path() + "/flight-recorder") << "garbage";
  EXPECT_EQ(run({GRADRINGCTL, directory, "flight-recorder"}).exit_code, 1);
}

// Else a script whose variable is not set drains the node that it runs on.
TEST(Ctl, AnEmptyNameIsNotTakenForNone) {
  TemporaryFolder empty;
  const auto complaint = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {GRADRINGCTL, "--runtime-dir=" + empty.path()});
    const auto outcome = run(words);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    return outcome.err;
  };
  EXPECT_EQ(complaint({"--node", "", "drain"}),
            "gradringctl: --node takes a name, not nothing; see --help\n");
  EXPECT_THAT(complaint({"flight-recorder", ""}), HasSubstr("the name of one job, or none"));
  EXPECT_THAT(complaint({"set", "", "weight=3"}), HasSubstr("it takes a job and what to set"));
  EXPECT_EQ(run({GRADRINGCTL, "--runtime-dir", "", "status"}).err,
            "gradringctl: --runtime-dir takes a name, not nothing; see --help\n");
}

TEST(Ctl, OutputsThatTakeNothingChangeNoExitCode) {
  TemporaryFolder empty;
  for (const std::string outputs : {"<&- >&- 2>&-", "2>/dev/full"}) {
    const auto outcome = run({"sh", "-c", "exec \"$@\" " + outputs, "sh", GRADRINGCTL,
                              "--runtime-dir", empty.path(), "status"});
    EXPECT_EQ(outcome.exit_code, 3) << outputs;
  }
}

TEST(Ctl, AProcessWithoutRoomForASocketIsToldSo) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs descriptors of its own";
  TemporaryFolder empty;
  // Nor for any, whatever this process was given: of those behind its first libzmq ends by itself.
  const std::string script =
      "for fd in 3 4 5 6 7 8 9; do eval \"exec $fd>&-\"; done; ulimit -n 4; exec \"$@\"";
  const auto outcome =
      run({"sh", "-c", script, "sh", GRADRINGCTL, "--runtime-dir", empty.path(), "status"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("gradringctl: Too many open files"));
}

TEST(Ctl, WhatADaemonDoesNotAllowIsNoDaemonThatCannotBeReached) {
  FakeDaemon daemon([](const wire::ClientMessage& message) {
    wire::DaemonMessage answer;
    answer.set_request(message.request());
    answer.mutable_refused()->set_code(static_cast<uint32_t>(Code::kPermissionDenied));
    answer.mutable_refused()->set_message("uid 7 may not");
    return answer.SerializeAsString();
  });
  const auto outcome = run({GRADRINGCTL, "--runtime-dir", daemon.runtime_dir(), "drain"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("uid 7 may not"));
}

TEST(Ctl, AnswersPeopleAndScripts) {
  FakeDaemon for_people(status_reply);
  const auto text = run({GRADRINGCTL, "status", "--runtime-dir", for_people.runtime_dir()});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("node a: ready"));
  FakeDaemon for_scripts(status_reply);
  const auto json =
      run({GRADRINGCTL, "--json", "--runtime-dir", for_scripts.runtime_dir(), "status"});
  EXPECT_EQ(json.exit_code, 0) << json.err;
  EXPECT_EQ(offence(schema_of("status"), nlohmann::json::parse(json.out)), "");
}

TEST(Ctl, BehindADoubleDashAJobMayBeginWithADash) {
  TemporaryFolder empty;
  const std::string directory = "--runtime-dir=" + empty.path();
  const auto code = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {GRADRINGCTL, directory});
    return run(words).exit_code;
  };
  EXPECT_EQ(code({"job", "-x"}), 2);
  EXPECT_EQ(code({"job", "--", "-x"}), 3);  // it was asked, and nobody is there
  EXPECT_EQ(code({"--", "job", "x"}), 3);
  EXPECT_EQ(code({"job", "--", "-x", "y"}), 2);
  EXPECT_EQ(code({"set", "--", "-x", "weight=3"}), 3);
  EXPECT_EQ(code({"flight-recorder", "--last", "3", "--", "-x"}), 3);
  EXPECT_EQ(code({"status", "--", "-x"}), 2);
}

// A long one does not wait in stdio's buffer for the end.
TEST(Ctl, AnAnswerThatCannotBeWrittenIsToldInWords) {
  for (const size_t letters : {1, 100'000}) {
    FakeDaemon daemon([letters](const wire::ClientMessage& message) {
      wire::DaemonMessage answer;
      answer.set_request(message.request());
      answer.mutable_reply()->mutable_status()->set_state("ready");
      answer.mutable_reply()->mutable_status()->set_devices(std::string(letters, 'x'));
      return answer.SerializeAsString();
    });
    const auto outcome =
        run_without_room({GRADRINGCTL, "--runtime-dir", daemon.runtime_dir(), "status"});
    EXPECT_EQ(outcome.exit_code, 1) << letters;
    EXPECT_EQ(outcome.err, "gradringctl status: cannot write the answer\n");
  }
  for (const char* option : {"--help", "--version"}) {
    const auto outcome = run_without_room({GRADRINGCTL, option});
    EXPECT_EQ(outcome.exit_code, 1) << option;
    EXPECT_EQ(outcome.err, "gradringctl: cannot write the answer\n");
  }
}

TEST(Ctl, MakesKeys) {
  TemporaryFolder folder;
  const auto outcome =
      run({GRADRINGCTL, "--json", "keygen", "--out", folder.path(), "--name", "b"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(offence(schema_of("keygen"), nlohmann::json::parse(outcome.out)), "");
  EXPECT_EQ(run({GRADRINGCTL, "keygen", "--out", folder.path(), "--name", "b"}).exit_code, 1);
}

TEST(Ctl, KeygenRefusesWhatIsNoNodeToADaemon) {
  TemporaryFolder folder;
  for (const std::string& name : {std::string(128, 'a'), std::string("kn\u00f6ten"),
                                  std::string("#a"), std::string("a b"), std::string("a/b")}) {
    const auto outcome = run({GRADRINGCTL, "keygen", "--out", folder.path(), "--name", name});
    EXPECT_EQ(outcome.exit_code, 2) << name;
    EXPECT_THAT(outcome.err, HasSubstr("no name for a node")) << name;
  }
  EXPECT_EQ(
      run({GRADRINGCTL, "keygen", "--out", folder.path(), "--name", std::string(127, 'a')}).err,
      "");
}

// gradringd takes numeric addresses only.
TEST(Ctl, KeygenTellsToListenAtWhatADaemonCan) {
  TemporaryFolder folder;
  const auto told = [&](const std::string& name, const std::string& address) {
    std::vector<std::string> words = {GRADRINGCTL,   "keygen", "--out",
                                      folder.path(), "--name", name};
    if (!address.empty()) words.insert(words.end(), {"--address", address});
    return run(words).out;
  };
  EXPECT_THAT(told("a", "10.0.0.1:7300"), HasSubstr("--listen 10.0.0.1:7300 "));
  EXPECT_THAT(told("b", "[fd00::1]:7300"), HasSubstr("--listen [fd00::1]:7300 "));
  for (const char* address : {"", "d.example:7300"}) {
    const std::string text = told(*address == '\0' ? "c" : "d", address);
    EXPECT_THAT(text, HasSubstr("--listen ADDRESS:PORT "));
    EXPECT_THAT(text, HasSubstr(*address == '\0' ? "c.pub says c:7300" : "says d.example:7300"));
  }
  EXPECT_THAT(told("host:7300", ""), HasSubstr(folder.path() + "/host-7300.key"));
}

}  // namespace
}  // namespace gradring::tools
