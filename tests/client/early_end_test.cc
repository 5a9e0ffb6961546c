// The end of an op comes through a ring, the news of the view that it ended in as a message, which
// may be behind.
#include <thread>

#include "tests/client/elastic.h"

namespace gradring::test {
namespace {

constexpr int64_t kNotByAnAlarmMs = 500;  // which goes off after 1000

class EarlyEnd : public Elastic {
 protected:
  void SetUp() override {
    daemon_.set([](Script& script) {
      script.complete = false;
      script.rings = true;
    });
    comm_ = open_elastic();
  }

  gradring_request submit_named() {
    gradring_op op = barrier_op();
    op.name = "first use";  // a name is told in a message, which the fake reads
    return submit(comm_, op);
  }

  // The op that was submitted last, in the view of epoch 2.
  void end_in_the_next_view() {
    RingEnd end;
    end.verdict = static_cast<uint32_t>(Verdict::kOkShrunk);
    end.epoch = 2;
    end.ranks_min = end.ranks_max = 3;
    daemon_.end_by_ring(operation(++submitted_), end);
  }

  bool ended(gradring_request request) {
    int done = 0;
    EXPECT_EQ(gradring_test(comm_.get(), request, &done, nullptr), GRADRING_OK);
    return done != 0;
  }

  void close_job() {
    wire::DaemonMessage message;
    message.mutable_closed()->set_job(kFakeJob);
    to_wire(Failure{Cause::kTrainerDied, Blame{0, "elsewhere", 99, "", ""}},
            message.mutable_closed()->mutable_failure());
    message.mutable_closed()->set_message("rank 0 died");
    daemon_.send(message);
  }

  void expect_shrunk(gradring_request request) {
    gradring_result result = empty_result();
    EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, &result), GRADRING_OK)
        << gradring_last_error();
    EXPECT_EQ(result.verdict, static_cast<uint32_t>(Verdict::kOkShrunk));
    EXPECT_EQ(result.epoch, 2u);
  }
};

TEST_F(EarlyEnd, WaitsForTheNewsOfItsView) {
  const gradring_request request = submit_named();
  end_in_the_next_view();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(ended(request));
  tell(view_of("job", 2, {1, 2, 3}), "rank 0 died");
  expect_shrunk(request);
  EXPECT_EQ(view().size, 3u);
}

TEST_F(EarlyEnd, DoesNotWaitForItOnceTheJobHasFailed) {
  EXPECT_LT(quickest_of_five([&] {
              comm_ = open_elastic();
              const gradring_request request = submit_named();
              end_in_the_next_view();
              EXPECT_FALSE(ended(request));
              close_job();
              expect_shrunk(request);
            }),
            kNotByAnAlarmMs);
}

TEST_F(EarlyEnd, DoesNotWaitForItWhereTheJobHasFailedBefore) {
  EXPECT_LT(quickest_of_five([&] {
              comm_ = open_elastic();
              const gradring_request request = submit_named();
              close_job();
              while (gradring_failure(comm_.get(), nullptr) == GRADRING_OK)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
              end_in_the_next_view();
              expect_shrunk(request);
            }),
            kNotByAnAlarmMs);
}

}  // namespace
}  // namespace gradring::test
