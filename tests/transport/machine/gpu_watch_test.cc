// What NVML tells of GPUs while it happens, by a libnvidia-ml that is played, and what that means.
#include "transport/machine/gpu_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "tests/tools/process.h"
#include "tests/transport/machine/gpu_script.h"
#include "transport/machine/gpu_records.h"
#include "transport/machine/nvml.h"

namespace gradring::machine {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using Kind = GpuNews::Kind;

constexpr int kPatienceMs = 20'000;  // for what takes no time on a machine that has some

GpuNews fault(int gpu, GpuFault what, uint64_t xid, const std::string& part = "") {
  return {Kind::kFault,        what, xid,
          GpuScript::gpu(gpu), part, *parse_pci(gpu == 0 ? "0000:a1:00.0" : "0000:a2:00.0")};
}

class WatchedGpus : public testing::Test {
 protected:
  ~WatchedGpus() override { unsetenv("GRADRING_FAKE_NVML"); }
  void start(const char* mood = "", const std::string& library = FAKE_NVML) {
    setenv("GRADRING_FAKE_NVML", mood, 1);
    watch_.start(library);
  }
  // All that is told until there is that much, or until it is over.
  std::vector<GpuNews> next(size_t count) {
    std::vector<GpuNews> all;
    while (all.size() < count && !watch_.over()) {
      pollfd item{watch_.fd(), POLLIN, 0};
      if (poll(&item, 1, kPatienceMs) != 1) {
        ADD_FAILURE() << "nothing was told";
        break;
      }
      for (GpuNews& news : watch_.take()) all.push_back(std::move(news));
    }
    return all;
  }
  void expect_over(const std::string& fault) {
    EXPECT_THAT(next(1), IsEmpty());
    EXPECT_TRUE(watch_.over());
    EXPECT_THAT(watch_.fault(), HasSubstr(fault));
    EXPECT_THAT(watch_.take(), IsEmpty());
    EXPECT_EQ(watch_.child(), -1) << "and nobody is left";
  }

  const tools::TemporaryFolder folder_;
  const GpuScript script_{folder_.path() + "/events"};
  GpuWatch watch_;
};

TEST_F(WatchedGpus, AreNamedAndThenTheirErrorsAreToldAtOnce) {
  start();
  const auto there = next(2);
  ASSERT_THAT(there, SizeIs(2)) << "the third had fallen off the bus before";
  EXPECT_EQ(there[1].kind, Kind::kThere);
  EXPECT_EQ(there[1].gpu, GpuScript::gpu(1));
  EXPECT_EQ(text_of(there[1].pci), "0000:a2:00.0");
  script_.happens("xid 1 79");
  EXPECT_THAT(next(1), ElementsAre(fault(1, GpuFault::kXid, 79)));
  script_.happens("ecc 0\nxid 0 31");
  EXPECT_THAT(next(2),
              ElementsAre(fault(0, GpuFault::kDoubleBitEcc, 0), fault(0, GpuFault::kXid, 31)));
}

TEST_F(WatchedGpus, SeveralMayBeLostAndEachIsToldOnce) {
  start();
  next(2);
  script_.happens("lost 0");
  EXPECT_THAT(next(1), ElementsAre(fault(0, GpuFault::kLost, 0)));
  script_.happens("xid 1 31");
  EXPECT_THAT(next(1), ElementsAre(fault(1, GpuFault::kXid, 31))) << "the other is watched still";
  script_.happens("lost 1");
  EXPECT_THAT(next(1), ElementsAre(fault(1, GpuFault::kLost, 0)));
  expect_over("");
}

TEST_F(WatchedGpus, ThatAreCutUpAreToldByTheirParts) {
  start("mig");
  const auto there = next(4);
  const std::string part = "MIG-67726164-7269-6e67-2074-77696e202333";
  ASSERT_THAT(there, SizeIs(4));
  EXPECT_EQ(there[2].kind, Kind::kPart);
  EXPECT_EQ(there[2].gpu, GpuScript::gpu(1));
  EXPECT_EQ(there[2].part, part) << "in the order in which they are found";
}

TEST_F(WatchedGpus, WhereAPartHasAnErrorThatIsNamed) {
  start("mig");
  next(4);
  script_.happens("mig 1 6 95");
  const std::string second = "MIG-67726164-7269-6e67-2074-77696e202334";
  EXPECT_THAT(next(1), ElementsAre(fault(1, GpuFault::kXid, 95, second)));
  script_.happens("mig 1 9 95");
  EXPECT_THAT(next(1), ElementsAre(fault(1, GpuFault::kXid, 95))) << "whichever that is";
  script_.happens("xid 1 79");
  EXPECT_THAT(next(1), ElementsAre(fault(1, GpuFault::kXid, 79)));
}

TEST_F(WatchedGpus, WithoutNvmlThereIsNothingToWatchAndNothingToSay) {
  start("", "libno-such-library.so");
  expect_over("");
  start("", "libm.so.6");
  expect_over("");
  start("refuse");
  expect_over("");
}

TEST_F(WatchedGpus, ThatTellNothingAreNotWaitedFor) {
  start("deaf");
  EXPECT_THAT(next(3), Each(Field(&GpuNews::kind, Kind::kThere)));
  EXPECT_TRUE(watch_.over());
  EXPECT_EQ(watch_.fault(), "");
}

TEST_F(WatchedGpus, ADriverThatCrashesEndsTheWatchAlone) {
  start("crash");
  expect_over("ended by signal 6");
  start();
  next(2);
  script_.happens("die");
  expect_over("ended by signal 6");
}

TEST_F(WatchedGpus, AProcessThatIsKilledEndsTheWatchAlone) {
  start();
  next(2);
  kill(watch_.child(), SIGKILL);
  expect_over("ended by signal 9");
}

TEST_F(WatchedGpus, ADriverThatHangsKeepsNobody) {
  const auto began = std::chrono::steady_clock::now();
  start("hang");
  EXPECT_THAT(watch_.take(), IsEmpty());
  EXPECT_FALSE(watch_.over());
  start();  // kills the first
  EXPECT_THAT(next(2), SizeIs(2));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
}

// It lives as long as the daemon, and must not keep alive what that lets go of.
TEST_F(WatchedGpus, TheProcessHoldsNothingOfTheDaemons) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe(ends), 0);
  start();
  next(2);
  close(ends[1]);
  pollfd item{ends[0], POLLIN, 0};
  EXPECT_EQ(poll(&item, 1, kPatienceMs), 1) << "somebody still has the other end";
  EXPECT_NE(item.revents & POLLHUP, 0);
  close(ends[0]);
}

// By NVIDIA's own library, whose structures are written down here a second time.
TEST_F(WatchedGpus, OfThisMachineAreListenedTo) {
  const NvmlAnswers answers = ask_nvml(kNvmlLibrary);
  if (answers.gpus.empty()) GTEST_SKIP() << "no GPU of NVIDIA's here: " << answers.absent;
  start("", kNvmlLibrary);
  const auto there = next(answers.gpus.size());
  ASSERT_FALSE(there.empty());
  EXPECT_EQ(there[0].gpu, answers.gpus[0].uuid);
  EXPECT_EQ(there[0].pci, answers.gpus[0].pci);
  poll(nullptr, 0, 500);
  watch_.take();
  EXPECT_EQ(watch_.fault(), "");
  EXPECT_FALSE(watch_.over()) << "this GPU, or what runs it, tells of no errors";
}

// ---- the pipe ----

// Into the child's own end of it, as if its driver had run wild.
TEST_F(WatchedGpus, NonsenseInThePipeEndsTheWatchAlone) {
  start();
  next(2);
  const std::string fds = "/proc/" + std::to_string(watch_.child()) + "/fd";
  int pipe = -1;
  for (const auto& entry : std::filesystem::directory_iterator(fds)) {
    const std::string what = std::filesystem::read_symlink(entry.path());
    if (what.starts_with("pipe:")) pipe = open(entry.path().c_str(), O_WRONLY | O_CLOEXEC);
  }
  ASSERT_GE(pipe, 0);
  const GpuRecord good = record_of(fault(0, GpuFault::kXid, 79));
  const auto put = [pipe](const void* bytes, size_t count) {
    ASSERT_EQ(write(pipe, bytes, count), static_cast<ssize_t>(count));
  };
  put(&good, 100);
  EXPECT_THAT(watch_.take(), IsEmpty()) << "the rest has not come";
  put(reinterpret_cast<const char*>(&good) + 100, sizeof good - 100);
  EXPECT_THAT(watch_.take(), ElementsAre(fault(0, GpuFault::kXid, 79)));
  put(std::string(500, 'x').data(), 500);
  close(pipe);
  expect_over("makes no sense");
}

TEST(GpuRecords, SayWhatTheyWereMadeOf) {
  for (const GpuNews& news :
       {GpuNews{Kind::kThere, GpuFault::kXid, 0, GpuScript::gpu(0), "", *parse_pci("0:17:00.0")},
        GpuNews{Kind::kPart, GpuFault::kXid, 0, GpuScript::gpu(0), "MIG-GPU-1/2/3", {}},
        fault(0, GpuFault::kDoubleBitEcc, 0), fault(1, GpuFault::kXid, 154)}) {
    const auto told = news_of(record_of(news));
    ASSERT_TRUE(told);
    EXPECT_EQ(*told, news);
  }
}

TEST(GpuRecords, NonsenseIsNoNews) {
  const GpuRecord good = record_of(fault(0, GpuFault::kXid, 79));
  ASSERT_TRUE(news_of(good));
  const auto expect_refused = [&good](const char* what, auto spoil) {
    GpuRecord bad = good;
    spoil(bad);
    EXPECT_FALSE(news_of(bad)) << what;
  };
  expect_refused("mark", [](GpuRecord& one) { ++one.mark; });
  expect_refused("kind", [](GpuRecord& one) { one.kind = 3; });
  expect_refused("fault", [](GpuRecord& one) { one.fault = 3; });
  expect_refused("number", [](GpuRecord& one) { one.xid = uint64_t{1} << 40; });
  expect_refused("no name", [](GpuRecord& one) { one.gpu[0] = '\0'; });
  expect_refused("an endless name", [](GpuRecord& one) { one.gpu.fill('x'); });
  expect_refused("a name for a terminal", [](GpuRecord& one) { one.gpu[2] = '\033'; });
  expect_refused("a part likewise", [](GpuRecord& one) { one.part[0] = '\n'; });
  expect_refused("an endless part", [](GpuRecord& one) { one.part.fill('x'); });
  expect_refused("a part without a name",
                 [](GpuRecord& one) { one.kind = static_cast<uint16_t>(Kind::kPart); });
  expect_refused("address", [](GpuRecord& one) { one.pci[0] = 'q'; });
  expect_refused("an endless address", [](GpuRecord& one) { one.pci.fill('0'); });
}

// ---- what they mean ----

TEST(Xids, MeanWhatNvidiaSaysOfThem) {
  const auto verdict = [](uint64_t xid) { return meaning_of(GpuFault::kXid, xid).verdict; };
  for (const uint64_t xid : {13, 31, 43, 45, 68, 69}) {
    EXPECT_EQ(verdict(xid), GpuVerdict::kNote) << xid << " is a program's own";
  }
  for (const uint64_t xid : {63, 74, 92, 94, 154}) {
    EXPECT_EQ(verdict(xid), GpuVerdict::kLook) << xid << ", and the GPU goes on";
  }
  for (const uint64_t xid : {48, 61, 62, 64, 79, 95, 119, 120, 140, 143}) {
    EXPECT_EQ(verdict(xid), GpuVerdict::kUnusable) << xid;
  }
  EXPECT_THAT(meaning_of(GpuFault::kXid, 79).what, HasSubstr("fallen off the bus"));
  EXPECT_THAT(meaning_of(GpuFault::kXid, 95).remedy, AllOf(HasSubstr("drain"), HasSubstr("reset")));
  EXPECT_EQ(meaning_of(GpuFault::kDoubleBitEcc, 0).verdict, GpuVerdict::kUnusable);
  EXPECT_EQ(meaning_of(GpuFault::kLost, 0).verdict, GpuVerdict::kUnusable);
}

TEST(Xids, ThatNobodyKnowsAreLookedAt) {
  for (const uint64_t xid : {0, 1, 12, 9999}) {
    const GpuMeaning meaning = meaning_of(GpuFault::kXid, xid);
    EXPECT_EQ(meaning.verdict, GpuVerdict::kLook) << xid;
    EXPECT_THAT(meaning.what, HasSubstr("does not know"));
  }
  EXPECT_EQ(title_of(GpuFault::kXid, 9999), "Xid 9999");
  EXPECT_EQ(word_of(GpuFault::kXid, 9999), "9999");
}

TEST(Xids, AllHaveWordsAndARemedy) {
  std::set<uint64_t> known;
  for (uint64_t xid = 0; xid < 300; ++xid) {
    const GpuMeaning meaning = meaning_of(GpuFault::kXid, xid);
    EXPECT_STRNE(meaning.what, "") << xid;
    EXPECT_STRNE(meaning.remedy, "") << xid;
    if (std::string(meaning.what).find("gradring does not") == std::string::npos) known.insert(xid);
  }
  EXPECT_THAT(known, SizeIs(43)) << "each in its place of the table";
}

}  // namespace
}  // namespace gradring::machine
