#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/client/trainer.h"

namespace gradring::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

class SubmitAll : public ::testing::Test {
 protected:
  std::vector<gradring_op> sums(size_t number) const {
    std::vector<gradring_op> ops;
    for (size_t i = 0; i < number; ++i) ops.push_back(sum_of(memory_ + 8 * i, memory_ + 8 * i, 8));
    return ops;
  }
  gradring_code submit_all(const std::vector<gradring_op>& ops) {
    requests_.assign(ops.size(), 99);
    return gradring_submit_all(comm_.get(), ops.data(), static_cast<uint32_t>(ops.size()),
                               requests_.data());
  }

  FakeDaemon daemon_;
  Comm comm_ = open(daemon_, 1, 4);
  float* memory_ = alloc(comm_, 1024);
  std::vector<gradring_request> requests_;
};

TEST_F(SubmitAll, HandsThemOverInTheirOrder) {
  for (size_t i = 0; i < 24; ++i) memory_[i] = 1;
  std::vector<gradring_op> ops = sums(3);
  ops[1].name = "bias";
  ASSERT_EQ(submit_all(ops), GRADRING_OK) << gradring_last_error();
  for (const gradring_request request : requests_) {
    EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, nullptr), GRADRING_OK);
  }
  EXPECT_THAT(std::vector<float>(memory_, memory_ + 24), Each(4));
  const auto operations = daemon_.wait_for_operations(3);
  EXPECT_EQ(from_wire(operations.at(0).key()), (OpKey{0, 0}));
  EXPECT_EQ(operations.at(1).name(), "bias");
  EXPECT_EQ(from_wire(operations.at(2).key()), (OpKey{0, 1}));
}

TEST_F(SubmitAll, HandsOverNoneWhereOneIsRefused) {
  std::vector<gradring_op> ops = sums(3);
  ops[0].name = "bias";
  ops[2].count = 2000;
  EXPECT_EQ(submit_all(ops), GRADRING_ERR_NOT_FOUND);
  EXPECT_THAT(requests_, Each(0));
  ops[2].count = 8;
  ops[2].op = static_cast<gradring_reduce_op>(77);
  EXPECT_EQ(submit_all(ops), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("op 77"));
  EXPECT_TRUE(daemon_.wait_for_messages(wire::ClientMessage::kSubmit, 0).empty());

  // No number and no use of a name was spent.
  ops[2].op = GRADRING_SUM;
  ASSERT_EQ(submit_all(ops), GRADRING_OK) << gradring_last_error();
  const auto operations = daemon_.wait_for_operations(3);
  EXPECT_EQ(operations.at(0).key().sequence(), 0u);
  EXPECT_EQ(from_wire(operations.at(1).key()), (OpKey{0, 0}));
  EXPECT_EQ(gradring_free(comm_.get(), memory_), GRADRING_ERR_INVALID) << "the ops hold it";
}

TEST_F(SubmitAll, CountsTheUsesOfANameAmongThem) {
  std::vector<gradring_op> ops = sums(3);
  for (gradring_op& op : ops) op.name = "shared";
  ASSERT_EQ(submit_all(ops), GRADRING_OK);
  const auto operations = daemon_.wait_for_operations(3);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(operations.at(i).key().sequence(), i);
}

TEST_F(SubmitAll, CopiesAllThatIsRegistered) {
  std::vector<float> values(64, 2);
  ASSERT_EQ(gradring_register(comm_.get(), values.data(), 64 * sizeof(float)), GRADRING_OK);
  std::vector<gradring_op> ops = sums(1);
  ops.push_back(sum_of(values.data(), values.data(), 32));
  ops.push_back(sum_of(values.data() + 32, values.data() + 32, 32));
  ASSERT_EQ(submit_all(ops), GRADRING_OK);
  for (const gradring_request request : requests_) {
    EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, nullptr), GRADRING_OK);
  }
  EXPECT_THAT(values, Each(8));
}

TEST_F(SubmitAll, RefusesNonsense) {
  EXPECT_EQ(submit_all({}), GRADRING_OK) << "none is all of none";
  EXPECT_EQ(gradring_submit_all(comm_.get(), nullptr, 2, requests_.data()), GRADRING_ERR_INVALID);
  std::vector<gradring_op> ops = sums(2);
  EXPECT_EQ(gradring_submit_all(comm_.get(), ops.data(), 2, nullptr), GRADRING_ERR_INVALID);
  ops[1].struct_size = 0;
  EXPECT_EQ(submit_all(ops), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), AllOf(HasSubstr("ops[1]"), HasSubstr("struct_size")));
  ops[1].struct_size = sizeof(gradring_op) - 8;
  EXPECT_EQ(submit_all(ops), GRADRING_ERR_INVALID);
  EXPECT_THAT(gradring_last_error(), HasSubstr("different struct_size"));
}

}  // namespace
}  // namespace gradring::test
