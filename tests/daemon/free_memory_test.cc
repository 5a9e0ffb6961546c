// What malloc keeps goes back to the kernel, also after a burst in the midst of which it was
// looked.

#include "daemon/control/free_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "daemon/control/door/process.h"
#include "tests/sanitized.h"

namespace gradring::daemon {
namespace {

TEST(FreeMemory, GivesBackWhatABurstHadThatWasStillGoingOn) {
  if (kSanitized) GTEST_SKIP() << "it is the C library's malloc that keeps memory";
  FreeMemory memory;
  memory.tick(0);
  const uint64_t before = own_anonymous_bytes();
  std::vector<std::unique_ptr<char[]>> burst;
  for (int i = 0; i < 100'000; ++i) burst.push_back(std::make_unique<char[]>(1000));
  memory.tick(10 * core::kSecond);
  const auto last = std::move(burst.back());  // keeps malloc from giving back all the others alone
  burst.clear();
  ASSERT_GT(own_anonymous_bytes(), before + (80 << 20)) << "malloc keeps it";
  memory.tick(20 * core::kSecond);
  EXPECT_LT(own_anonymous_bytes(), before + (10 << 20));
}

}  // namespace
}  // namespace gradring::daemon
