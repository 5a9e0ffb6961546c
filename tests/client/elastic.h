#pragma once

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/client/fake_view.h"
#include "tests/client/trainer.h"

namespace gradring::test {

// Rank 2 of an elastic job that formed with four. Ops stay open until the test completes them.
class Elastic : public ::testing::Test {
 protected:
  void SetUp() override {
    daemon_.set([](Script& script) { script.complete = false; });
    comm_ = open_elastic();
  }

  Comm open_elastic() {
    gradring_options options = options_for(daemon_.runtime_dir(), 2, 4);
    options.policy = "elastic min=2 max=8";
    gradring_comm* comm = nullptr;
    EXPECT_EQ(gradring_open(&options, &comm), GRADRING_OK) << gradring_last_error();
    return Comm(comm);
  }

  void tell(const wire::View& view, const std::string& explanation = "", uint64_t job = kFakeJob) {
    wire::DaemonMessage message;
    message.mutable_view_changed()->set_job(job);
    *message.mutable_view_changed()->mutable_view() = view;
    message.mutable_view_changed()->set_explanation(explanation);
    daemon_.send(message);
  }

  static wire::Completion completion(Verdict verdict, uint64_t epoch, uint32_t ranks_min,
                                     uint32_t ranks_max) {
    wire::Completion completion;
    completion.set_verdict(static_cast<uint32_t>(verdict));
    completion.set_epoch(epoch);
    completion.set_ranks_min(ranks_min);
    completion.set_ranks_max(ranks_max);
    return completion;
  }

  // The latest submission, which is the `count`th.
  wire::Operation operation(size_t count) {
    auto all = daemon_.wait_for_operations(count);
    EXPECT_EQ(all.size(), count);
    return all.empty() ? wire::Operation() : all.back();
  }

  // Submits a barrier, ends it so, and waits for it.
  gradring_result barrier(const wire::Completion& end) {
    const gradring_request request = submit(comm_, barrier_op());
    daemon_.complete(operation(++submitted_), end);
    gradring_result result = empty_result();
    EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, &result), GRADRING_OK)
        << gradring_last_error();
    return result;
  }

  // Goes through a join point, at which the daemon says `view` and ends it so.
  gradring_view join_point(const std::vector<wire::View>& views, const wire::Completion& end) {
    gradring_view seen{};
    seen.struct_size = sizeof(seen);
    std::thread trainer([&] {
      EXPECT_EQ(gradring_join_point(comm_.get(), nullptr, &seen), GRADRING_OK)
          << gradring_last_error();
    });
    const wire::Operation open = operation(++submitted_);
    for (const wire::View& view : views) tell(view);
    daemon_.complete(open, end);
    trainer.join();
    return seen;
  }

  gradring_view view() {
    gradring_view view{};
    view.struct_size = sizeof(view);
    EXPECT_EQ(gradring_get_view(comm_.get(), &view), GRADRING_OK) << gradring_last_error();
    return view;
  }

  std::vector<uint32_t> ranks(uint64_t epoch) {
    std::vector<uint32_t> ranks(16);
    uint32_t count = 0;
    EXPECT_EQ(gradring_view_ranks(comm_.get(), epoch, ranks.data(), 16, &count), GRADRING_OK)
        << gradring_last_error();
    ranks.resize(count);
    return ranks;
  }

  FakeDaemon daemon_;
  Comm comm_;
  size_t submitted_ = 0;
};

}  // namespace gradring::test
