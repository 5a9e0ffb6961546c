// Whether NCCL sums what lies on several GPUs, which is settled when they start.

#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>

#include "tests/transport/gpus_nccl_fixture.h"
#include "transport/cuda/communicators.h"

namespace gradring::transport {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(GpuNccl, WithoutItKernelsDoItAndTheWaySaysSo) {
  nccl_.answer("ncclGetUniqueId", 1);
  use(2);
  nccl_.answer("ncclGetUniqueId", 0);
  EXPECT_THAT(gpus_->way(), StartsWith("by kernels"));
  EXPECT_THAT(gpus_->way(), HasSubstr("unhandled cuda error"));
  EXPECT_EQ(nccl_.held(), 0);
  allreduce(kSum, 4, 1000, 2);
}

TEST_F(GpuNccl, ACommunicatorThatCannotBeMadeIsNoFailureEither) {
  nccl_.answer("ncclCommInitRankConfig", 1);
  use(2);
  nccl_.answer("ncclCommInitRankConfig", 0);
  EXPECT_THAT(gpus_->way(), HasSubstr("makes no communicators"));
  allreduce(kSum, 4, 1000, 2);
}

TEST_F(GpuNccl, WhicheverIsFasterIsChosen) {
  use(2, {GpuSumsBy::kMeasured});
  EXPECT_THAT(gpus_->way(), HasSubstr("64 MiB of float32 on each GPU by NCCL 2.28.9"));
  EXPECT_THAT(gpus_->way(), HasSubstr("GB/s, by kernels"));
  allreduce(kSum, 4, 1000, 2);
  use(1, {GpuSumsBy::kMeasured});
  EXPECT_THAT(gpus_->way(), HasSubstr("one GPU alone"));
}

TEST_F(GpuNccl, OneThatFailsWhileItIsMeasuredIsNotChosen) {
  nccl_.answer("after",
               nccl_.groups() + 2 * static_cast<int>(cuda::Communicators::kTriedBytes.size()));
  use(2, {GpuSumsBy::kMeasured});
  nccl_.answer("after", 0);
  EXPECT_THAT(gpus_->way(), StartsWith("by kernels"));
  EXPECT_THAT(gpus_->way(), HasSubstr("which does not work"));
  allreduce(kSum, 4, 1000, 2);
}

// A process of its own, since that stays.
TEST_F(GpuNccl, OfAGpuThatHangsKeepsItsMemoryAndNobodyWaiting) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [this] {
    ::alarm(60);  // and whoever waits dies of it
    have(2, {GpuSumsBy::kNccl});
    const Memory on_first = lend(Bytes(8), 0, 0), on_second = lend(Bytes(8), 0, 1);
    twin_.settle(true);
    twin_.hold_gpu(0, true);
    const Status started = gpus_->start();
    const bool said = gpus_->way().find("does not end its first sum") != std::string::npos;
    std::quick_exit(started.ok() && said ? 0 : 1);
  };
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(0), "");
}

// What GPUs may still work on is not freed: a driver would wait for them, and start-up with it.
TEST_F(GpuNccl, WhatDoesNotEndWhileItIsMeasuredKeepsNobodyAndItsMemory) {
  have(2, {GpuSumsBy::kMeasured, std::chrono::milliseconds(200)});
  nccl_.answer("connects", 100);  // so that there is time until it is measured
  const int before = nccl_.groups();
  auto started = std::async(std::launch::async, [this] { return gpus_->start(); });
  const auto until = [&](int groups) {
    while (nccl_.groups() < before + groups) std::this_thread::yield();
  };
  until(1);
  twin_.stall("cuMemAlloc_v2", true);
  until(2 * static_cast<int>(cuda::Communicators::kTriedBytes.size()));
  let_gpus_work();
  twin_.hold_gpu(0, true);
  twin_.settle(true);
  const int held = twin_.held();
  twin_.stall("cuMemAlloc_v2", false);
  const bool in_time = started.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  EXPECT_TRUE(in_time);
  EXPECT_GE(twin_.held(), held + 2);
  twin_.hold_gpu(0, false);
  const Status how = started.get();
  EXPECT_THAT(how.message(), HasSubstr("did not end within 0.2 s"));
  EXPECT_THAT(how.message(), HasSubstr("uses no GPU any more"));
  EXPECT_THAT(gpus_->way(), StartsWith("not at all"));
  twin_.settle(false);
  nccl_.answer("connects", 0);
}

// Where the machine has no way between them.
TEST_F(GpuNccl, GpusThatDoNotReachOneAnotherAreSummedToo) {
  twin_.answer("cuDeviceCanAccessPeer", 1);
  use(3);
  allreduce(kSum, 4, 1000, 3);
  use(2, {GpuSumsBy::kMeasured});
  twin_.answer("cuDeviceCanAccessPeer", 0);
  EXPECT_THAT(gpus_->way(), StartsWith("by NCCL"));
  EXPECT_THAT(gpus_->way(), HasSubstr("by kernels which does not work"));
}

// NCCL believes the driver.
TEST_F(GpuNccl, IsNotUsedWhereTheWayBetweenGpusLosesData) {
  twin_.answer("peers lose", 1);
  use(2);
  EXPECT_THAT(gpus_->way(), HasSubstr("not by NCCL, which would go where data is lost"));
  ::setenv("NCCL_P2P_DISABLE", "1", 1);
  use(2);
  ::unsetenv("NCCL_P2P_DISABLE");
  EXPECT_EQ(gpus_->way(), "by NCCL 2.28.9");
  allreduce(kSum, 4, 1000, 2);
  twin_.answer("peers lose", 0);
}

TEST(NcclEnvironment, IsForOneProcessThatWaitsForNobodyButWhatTheUserSaysStays) {
  const auto now = [](const char* name) {
    const char* const value = ::getenv(name);
    return std::string(value == nullptr ? "unset" : value);
  };
  for (const char* const name : {"NCCL_SOCKET_IFNAME", "NCCL_RUNTIME_CONNECT"}) ::unsetenv(name);
  set_nccl_environment(GpuSumsBy::kKernels);
  EXPECT_EQ(now("NCCL_SOCKET_IFNAME") + now("NCCL_RUNTIME_CONNECT"), "unsetunset");
  ::setenv("NCCL_SOCKET_IFNAME", "eth0", 1);
  set_nccl_environment(GpuSumsBy::kMeasured);
  EXPECT_EQ(now("NCCL_SOCKET_IFNAME"), "eth0");
  EXPECT_EQ(now("NCCL_RUNTIME_CONNECT"), "0");
  for (const char* const name : {"NCCL_SOCKET_IFNAME", "NCCL_RUNTIME_CONNECT"}) ::unsetenv(name);
}

}  // namespace
}  // namespace gradring::transport
