#include <gmock/gmock.h>

#include <gradring/gradring.hpp>
#include <string>
#include <vector>

#include "tests/client/trainer.h"

namespace gradring::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Submits the last layer first, and needs the first one first.
class Priorities : public ::testing::Test {
 protected:
  Comm open(const char* priorities) {
    gradring_options options = options_for(daemon_.runtime_dir());
    options.priorities = priorities;
    gradring_comm* comm = nullptr;
    EXPECT_EQ(gradring_open(&options, &comm), GRADRING_OK) << gradring_last_error();
    return Comm(comm);
  }
  void step(const Comm& comm, bool by_test = false) {
    std::vector<gradring_request> requests;
    for (const char* name : {"layer 2", "layer 1", "layer 0"}) {
      gradring_op op = barrier_op();
      op.name = name;
      if (name == own_) op.priority = 5;
      requests.push_back(submit(comm, op));
    }
    submit(comm, barrier_op());
    for (auto request = requests.rbegin(); request != requests.rend(); ++request) {
      if (by_test) {
        int done = 0;
        while (done == 0) {
          ASSERT_EQ(gradring_test(comm.get(), *request, &done, nullptr), GRADRING_OK);
        }
      } else {
        ASSERT_EQ(gradring_wait(comm.get(), *request, 5000, nullptr), GRADRING_OK);
      }
    }
  }
  // Of the ops of the newest step.
  std::vector<int32_t> told(size_t steps) {
    std::vector<int32_t> priorities;
    const auto operations = daemon_.wait_for_operations(4 * steps);
    for (size_t i = 4 * (steps - 1); i < 4 * steps; ++i) {
      priorities.push_back(operations.at(i).priority());
    }
    return priorities;
  }

  static constexpr size_t kSteps =
      5;  // three that count, the one behind them, and one that has them
  FakeDaemon daemon_;
  std::string own_;  // the layer that has a number of its own
};

TEST_F(Priorities, AreLearnedFromTheOrderOfWaiting) {
  const Comm comm = open("learned");
  uint32_t count = 9;
  ASSERT_EQ(gradring_learned_priorities(comm.get(), nullptr, 0, &count), GRADRING_OK);
  EXPECT_EQ(count, 0u);
  for (size_t i = 0; i < kSteps; ++i) step(comm);
  EXPECT_THAT(told(1), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(told(kSteps), ElementsAre(-3, -2, -1, 0)) << "what has no name goes before all";

  std::vector<gradring_learned_priority> learned(2);
  ASSERT_EQ(gradring_learned_priorities(comm.get(), learned.data(), 2, &count), GRADRING_OK);
  EXPECT_EQ(count, 3u);
  EXPECT_STREQ(learned[0].name, "layer 0");
  EXPECT_EQ(learned[0].priority, -1);
  EXPECT_STREQ(learned[1].name, "layer 1");
  EXPECT_EQ(gradring_learned_priorities(comm.get(), nullptr, 2, &count), GRADRING_ERR_INVALID);
}

TEST_F(Priorities, AreLearnedFromTheOrderOfTesting) {
  const Comm comm = open("learned");
  for (size_t i = 0; i < kSteps; ++i) step(comm, true);
  EXPECT_THAT(told(kSteps), ElementsAre(-3, -2, -1, 0));
}

TEST_F(Priorities, ThatAreGivenWin) {
  const Comm comm = open("learned");
  own_ = "layer 2";
  for (size_t i = 0; i < kSteps; ++i) step(comm);
  EXPECT_THAT(told(kSteps), ElementsAre(5, -2, -1, 0));
}

TEST_F(Priorities, AreNotLearnedByDefault) {
  const Comm comm = open(nullptr);
  for (size_t i = 0; i < kSteps; ++i) step(comm);
  EXPECT_THAT(told(kSteps), ElementsAre(0, 0, 0, 0));
  uint32_t count = 9;
  ASSERT_EQ(gradring_learned_priorities(comm.get(), nullptr, 0, &count), GRADRING_OK);
  EXPECT_EQ(count, 0u);
}

TEST_F(Priorities, AreGivenOrLearnedAndNothingElse) {
  gradring_options options = options_for(daemon_.runtime_dir());
  options.priorities = "guessed";
  const Refusal refusal = open_refused(options);
  EXPECT_EQ(refusal.code, GRADRING_ERR_INVALID);
  EXPECT_THAT(refusal.message, HasSubstr("'guessed'"));
}

TEST_F(Priorities, AreToldToCpp) {
  gradring_options options = options_for(daemon_.runtime_dir());
  options.priorities = "learned";
  const Communicator job(options);
  for (size_t i = 0; i < kSteps; ++i) {
    Request second = job.start_barrier("second"), first = job.start_barrier("first");
    first.wait();
    second.wait();
  }
  const std::vector<LearnedPriority> learned = job.learned_priorities();
  ASSERT_EQ(learned.size(), 2u);
  EXPECT_EQ(learned[0].name, "first");
  EXPECT_EQ(learned[1].priority, -2);
}

}  // namespace
}  // namespace gradring::test
