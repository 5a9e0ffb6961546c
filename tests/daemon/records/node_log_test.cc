#include "daemon/records/node_log.h"

#include <gtest/gtest.h>

namespace gradring::daemon {
namespace {

wire::NodeEntry head() {
  wire::NodeEntry entry;
  entry.mutable_head()->set_format(1);
  entry.mutable_head()->set_node("n0");
  entry.mutable_head()->set_life(7);
  return entry;
}

TEST(NodeLogTest, AListThatSaysWhoseItIsIsBelieved) {
  auto log = RecordLog::create(1 << 16);
  ASSERT_TRUE(log);
  log->append(head());
  const auto memory = read_node_log(*log, "n0");
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->life, 7u);
  EXPECT_FALSE(read_node_log(*log, "n1"));
}

// Of a daemon that was killed after it had handed the list on, and before it wrote into it. The
// next one would take up the life of nobody, and be taken for the one that it has forgotten.
TEST(NodeLogTest, AListWithoutABeginningIsNone) {
  auto log = RecordLog::create(1 << 16);
  ASSERT_TRUE(log);
  EXPECT_FALSE(read_node_log(*log, "n0"));
  wire::NodeEntry over;
  over.set_session_over(3);
  log->append(over);
  log->append(head());
  EXPECT_FALSE(read_node_log(*log, "n0"));
}

}  // namespace
}  // namespace gradring::daemon
