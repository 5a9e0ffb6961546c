// A GPU that stops to work and says nothing; the driver is the tests'.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <gradring/gradring.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/daemon/live_gpu_ranks.h"
#include "tests/daemon/metrics/scraper.h"
#include "tests/daemon/scratch.h"

namespace gradring::daemon {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The GPU of whichever daemon is started while it lives.
class HangingGpu {
 public:
  HangingGpu() {
    if (!test::is_real()) test::cuda_twin().have(1);  // that of this process goes on
    setenv("GRADRING_TWIN_HANGS", scratch_.path("hang").c_str(), 1);
    setenv("GRADRING_TWIN_NCCL_FAILS", scratch_.path("nccl").c_str(), 1);
    setenv("GRADRING_TWIN_SETTLES", "1", 1);
    setenv("GRADRING_TWIN_MPS", "1", 1);
  }
  ~HangingGpu() {
    unsetenv("GRADRING_TWIN_HANGS");
    unsetenv("GRADRING_TWIN_NCCL_FAILS");
    unsetenv("GRADRING_TWIN_SETTLES");
    unsetenv("GRADRING_TWIN_MPS");
  }
  void hang() const { scratch_.write("hang", ""); }
  void go_on() const { std::filesystem::remove(scratch_.path("hang")); }
  void nccl_fails() const { scratch_.write("nccl", ""); }

 private:
  const Scratch scratch_;
};

class LiveGpuHang : private HangingGpu, public LiveGpuRanks {
 protected:
  explicit LiveGpuHang(std::vector<std::string> more = {})
      : LiveGpuRanks(flags(std::move(more)), "live", 0) {}
  void SetUp() override {
    if (test::is_real()) GTEST_SKIP() << "this is about the tests' own GPU";
  }
  using HangingGpu::go_on, HangingGpu::hang, HangingGpu::nccl_fails;
  static std::vector<std::string> flags(std::vector<std::string> more) {
    more.insert(more.end(), {"--drain-timeout", "1s"});
    return more;
  }
  gradring_options alone() const {
    gradring_options options{};
    options.struct_size = sizeof(options);
    options.runtime_dir = daemon_.runtime_dir().c_str();
    options.job = "train";
    options.rank = 0;
    options.size = 1;
    options.local_rank = options.local_size = -1;
    return options;
  }
};

TEST_F(LiveGpuHang, KeepsNoDaemonThatIsToldToStop) {
  hang();
  Communicator job(alone());
  DeviceBuffer gradients(job, kCount, false);
  Request sum = job.start(gradients.sum());
  wait_for_count("gpu_input_bytes", 1);
  const Ended ended = daemon_.stop();
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("its memory is left to the system"));
  EXPECT_ANY_THROW(sum.wait());
}

class LiveGpuHangOfNccl : public LiveGpuHang {
 protected:
  LiveGpuHangOfNccl() : LiveGpuHangOfNccl(free_port()) {}
  explicit LiveGpuHangOfNccl(int metrics)
      : LiveGpuHang({"--gpu-engine", "nccl", "--metrics", fmt::format("127.0.0.1:{}", metrics)}),
        metrics_(metrics) {}
  wire::QueryReply ask(wire::Query::What what) {
    wire::ClientMessage query;
    query.mutable_query()->set_what(what);
    return watcher_.ask(query).reply();
  }
  // Once it is there: figures are made anew each second.
  bool page_has(const std::string& line) const {
    for (int look = 0; look < 200; ++look) {
      if (metrics::ask(metrics_, metrics::kScrape).find(line) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }

 private:
  const int metrics_;
};

// Nothing that is under way ends, and NCCL has told the daemon that it has failed.
TEST_F(LiveGpuHangOfNccl, EndsNoOpButItsJobEndsInWords) {
  Communicator job(alone());
  DeviceBuffer gradients(job, kCount, false);
  hang();
  Request sum = job.start(gradients.sum());
  wait_for_count("gpu_input_bytes", 1);
  nccl_fails();
  auto ended = std::async(std::launch::async, [&sum]() -> std::string {
    try {
      sum.wait();
      return "well";
    } catch (const Error& error) {
      return error.what();
    }
  });
  EXPECT_EQ(ended.wait_for(std::chrono::seconds(40)), std::future_status::ready);
  go_on();
  EXPECT_THAT(ended.get(), HasSubstr("NCCL 2.28.9 has failed on one of the daemon's GPUs"));
  EXPECT_TRUE(daemon_.runs());
}

TEST_F(LiveGpuHangOfNccl, WhoeverAsksHearsThatNothingIsSummedThereAnyMore) {
  Communicator job(alone());
  DeviceBuffer gradients(job, kCount, false);
  EXPECT_TRUE(ask(wire::Query::TOPOLOGY).topology().gpu_sums().on_gpus());
  EXPECT_TRUE(page_has("gradring_gpus_given_up{node=\"live\"} 0\n"));
  nccl_fails();
  EXPECT_ANY_THROW(job.start(gradients.sum()).wait());
  const wire::QueryReply topology = ask(wire::Query::TOPOLOGY);
  const wire::GpuSumsReport& sums = topology.topology().gpu_sums();
  EXPECT_FALSE(sums.on_gpus());
  EXPECT_THAT(sums.reason(), HasSubstr("NCCL 2.28.9"));
  EXPECT_THAT(sums.by(), HasSubstr("1 GPU")) << "so that it is not taken for one that has none";
  const auto told = [&] {
    std::string kinds;
    const wire::QueryReply happened = ask(wire::Query::EVENTS);
    for (const auto& event : happened.events().events()) kinds += event.kind() + ";";
    return kinds;
  };
  for (int look = 0; look < 200 && told().find("gpus given up") == std::string::npos; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_THAT(told(), HasSubstr("gpus given up;"));
  EXPECT_THAT(daemon_.log(),
              AllOf(HasSubstr("error: no GPU sums here: NCCL 2.28.9"),
                    HasSubstr("until gradringd is restarted, and the server of MPS may take no")));
  EXPECT_TRUE(page_has("gradring_gpus_given_up{node=\"live\"} 1\n"));
}

}  // namespace
}  // namespace gradring::daemon
