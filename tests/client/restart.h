#pragma once

#include <gmock/gmock.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/fake_view.h"
#include "tests/client/trainer.h"

namespace gradring::test {

// A trainer whose daemon says that it may come back. Ops stay open until the test completes them.
class Restart : public ::testing::Test {
 protected:
  static constexpr uint32_t kGraceMs = 8000;
  // On top of which the library waits so long.
  static constexpr int64_t kMarginMs = 2000;

  void SetUp() override {
    daemon_.set([](Script& script) {
      script.complete = false;
      script.restart_grace_ms = kGraceMs;
    });
    comm_ = open(daemon_);
  }

  gradring_request submit_barrier() {
    const gradring_request request = submit(comm_, barrier_op());
    ++submits_;
    // So that the daemon has it before what the test does next.
    EXPECT_EQ(daemon_.wait_for_messages(wire::ClientMessage::kSubmit, submits_).size(), submits_);
    return request;
  }
  // Of all submissions so far, of which there are submits_; one that came again counts again.
  std::vector<wire::Operation> operations() { return daemon_.wait_for_operations(submits_); }

  // What was submitted anew after a restart; somebody has to be waiting, or nobody reads.
  wire::Submit submitted_again() {
    const auto all = daemon_.wait_for_messages(wire::ClientMessage::kSubmit, ++submits_);
    EXPECT_EQ(all.size(), submits_) << "nothing was submitted again";
    return all.empty() ? wire::Submit() : all.back().submit();
  }
  // Looks, with a wait that ends at once or nearly so, until the daemon has had the submission that
  // follows a restart.
  wire::Submit drive(gradring_request request) {
    std::thread trainer([&] {
      const auto start = Clock::now();
      while (!again_ && ms_since(start) < 10'000) {
        EXPECT_EQ(gradring_wait(comm_.get(), request, 5, nullptr), GRADRING_ERR_DEADLINE)
            << gradring_last_error();
      }
    });
    wire::Submit submit = submitted_again();
    again_ = true;
    trainer.join();
    again_ = false;
    return submit;
  }

  void restart(Listeners listeners = Listeners::kKept) {
    daemon_.die(listeners);
    daemon_.come_back();
  }

  static wire::DaemonMessage end_of(uint64_t ticket) {
    wire::DaemonMessage message;
    wire::Completion& completion = *message.mutable_completed()->add_completions();
    completion.set_ticket(ticket);
    completion.set_verdict(static_cast<uint32_t>(Verdict::kOk));
    completion.set_epoch(1);
    return message;
  }

  void wait_good(gradring_request request) {
    EXPECT_EQ(gradring_wait(comm_.get(), request, 10'000, nullptr), GRADRING_OK)
        << gradring_last_error();
  }
  // Waits for a request that must end badly, in so many ms.
  gradring_result wait_failed(gradring_request request, int64_t from_ms = 0,
                              int64_t to_ms = kSoonMs) {
    gradring_result result = empty_result();
    const auto start = Clock::now();
    EXPECT_EQ(gradring_wait(comm_.get(), request, -1, &result), GRADRING_ERR_FAILED);
    EXPECT_GE(ms_since(start), from_ms);
    EXPECT_LT(ms_since(start), to_ms);
    return result;
  }
  // Of a daemon that answers again.
  void expect_all_well() {
    daemon_.set([](Script& script) { script.complete = true; });
    auto* memory = alloc(comm_, 16);
    memory[3] = 5;
    EXPECT_EQ(gradring_allreduce(comm_.get(), memory, memory, 16, GRADRING_FLOAT32, GRADRING_SUM),
              GRADRING_OK)
        << gradring_last_error();
    EXPECT_EQ(memory[3], 10);
    EXPECT_EQ(gradring_free(comm_.get(), memory), GRADRING_OK) << gradring_last_error();
  }

  FakeDaemon daemon_;
  Comm comm_;
  size_t submits_ = 0;
  std::atomic<bool> again_ = false;
};

}  // namespace gradring::test
