#include "daemon/mailbox.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

namespace gradring::daemon {
namespace {

bool readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

TEST(Mailbox, GivesBackInOrderAndIsReadableOnlyWhileItHoldsSomething) {
  Mailbox<int> box(10);
  std::vector<int> taken = {99};
  EXPECT_FALSE(readable(box.event_fd()));
  box.take(&taken);
  EXPECT_TRUE(taken.empty());
  for (int i = 0; i < 5; ++i) box.post(i);
  EXPECT_TRUE(readable(box.event_fd()));
  box.take(&taken);
  EXPECT_EQ(taken, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_FALSE(readable(box.event_fd()));
  box.post(5);
  EXPECT_TRUE(readable(box.event_fd()));
}

TEST(Mailbox, FullIsAnAnswerAndWhatMustGoInStillDoes) {
  Mailbox<int> box(2);
  EXPECT_FALSE(box.full());
  box.post(1);
  box.post(2);
  EXPECT_TRUE(box.full());
  box.post(3);
  std::vector<int> taken;
  box.take(&taken);
  EXPECT_EQ(taken.size(), 3u);
  EXPECT_FALSE(box.full());
}

TEST(Mailbox, LosesNothingBetweenThreads) {
  constexpr int kItems = 20000;
  Mailbox<int> box(64);
  std::thread writer([&box] {
    for (int i = 0; i < kItems; ++i) {
      while (box.full()) std::this_thread::yield();
      box.post(i);
    }
  });
  int next = 0;
  std::vector<int> taken;
  while (next < kItems) {
    pollfd p{box.event_fd(), POLLIN, 0};
    ASSERT_EQ(poll(&p, 1, 10000), 1) << "a wake-up was lost after " << next;
    box.take(&taken);
    for (const int item : taken) ASSERT_EQ(item, next++);
  }
  writer.join();
}

}  // namespace
}  // namespace gradring::daemon
