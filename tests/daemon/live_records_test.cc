// A daemon that is killed between two of its records: what the next one makes of them.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "daemon/records/record_log.h"
#include "proto/record.pb.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/raw_trainer.h"

namespace gradring::daemon {
namespace {

using namespace std::chrono_literals;

// The daemon is the keeper's only child.
pid_t child_of(pid_t keeper) {
  const std::string pid = std::to_string(keeper);
  std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
  pid_t child = 0;
  children >> child;
  return child;
}

// The record of the control thread, in the memory of a daemon that lives. A job's has a head too,
// of other fields, and may have the lower descriptor.
std::optional<RecordLog> node_log_of(pid_t daemon) {
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(daemon) + "/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (gone || target.string().find("memfd:") == std::string::npos) continue;
    auto log = RecordLog::adopt(open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
    if (!log) continue;
    wire::NodeEntry first;
    log->for_each([&first](std::span<const std::byte> bytes) {
      first.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
      return false;
    });
    if (first.head().life() != 0) return std::move(*log);
  }
  return std::nullopt;
}

class LiveRecords : public testing::Test {
 protected:
  void kill_and_await_the_next() {
    const pid_t old = child_of(daemon_.pid());
    kill(old, SIGKILL);
    const auto until = std::chrono::steady_clock::now() + 20s;
    const auto took_over = [this] { return daemon_.log().find("took over") != std::string::npos; };
    while (!took_over() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(5ms);
    }
    ASSERT_TRUE(took_over()) << daemon_.log();
  }

  LiveDaemon daemon_{{"--keep", "--restart-grace", "20s"}};
};

TEST_F(LiveRecords, ARankThatTheJobHasIsInItAlthoughItsSessionWasNotWrittenDownSo) {
  RawTrainer trainer(daemon_.runtime_dir());
  ASSERT_TRUE(trainer.join("halfway", 0, 1).has_joined());
  auto log = node_log_of(child_of(daemon_.pid()));
  ASSERT_TRUE(log) << "the daemon has a record";
  // As it was before the admission: the job's record is written first.
  std::optional<wire::NodeEntry> before;
  log->for_each([&before](std::span<const std::byte> bytes) {
    wire::NodeEntry entry;
    entry.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
    if (entry.has_session()) before = entry;
    return true;
  });
  ASSERT_TRUE(before);
  ASSERT_EQ(before->session().part(), 2u) << "joined";
  before->mutable_session()->clear_part();
  before->mutable_session()->clear_handle();
  before->mutable_session()->clear_job();
  ASSERT_TRUE(log->append(*before));

  kill_and_await_the_next();
  RawTrainer again(daemon_.runtime_dir(), &trainer);
  const auto answer = again.join("halfway", 0, 1);
  ASSERT_TRUE(answer.has_joined()) << answer.ShortDebugString();
  const auto memory = again.allocate(4096);
  again.submit(RawTrainer::allreduce(memory, 16, 0));
  EXPECT_EQ(again.completion().verdict(), static_cast<uint32_t>(Verdict::kOk))
      << "it is in the job, and can work";
}

// It would be in the record of all jobs, which the next life could not read.
TEST_F(LiveRecords, APolicyThatNoRecordTakesIsRefused) {
  RawTrainer trainer(daemon_.runtime_dir());
  wire::ClientMessage message;
  message.mutable_join()->set_job("endless");
  message.mutable_join()->set_size(1);
  message.mutable_join()->set_policy("fail" + std::string(5000, ' '));
  const auto answer = trainer.ask(message);
  EXPECT_NE(answer.refused().message().find("policy"), std::string::npos)
      << answer.ShortDebugString();
}

}  // namespace
}  // namespace gradring::daemon
