#include "daemon/records/record_log.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "proto/wire.h"

namespace gradring::daemon {
namespace {

wire::OpKey entry(uint64_t sequence) {
  wire::OpKey key;
  key.set_space(7);
  key.set_sequence(sequence);
  return key;
}

// What the next process would find.
std::vector<uint64_t> found(const RecordLog& log, bool* counts = nullptr) {
  auto next = RecordLog::adopt(dup(log.fd()));
  EXPECT_TRUE(next) << next.error().message();
  std::vector<uint64_t> list;
  const bool whole = next->for_each([&](std::span<const std::byte> bytes) {
    wire::OpKey key;
    if (!key.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
    list.push_back(key.sequence());
    return true;
  });
  if (counts != nullptr) *counts = whole;
  return list;
}

TEST(RecordLogTest, TheNextProcessFindsWhatWasWritten) {
  auto log = RecordLog::create(1 << 20);
  ASSERT_TRUE(log);
  EXPECT_TRUE(found(*log).empty());
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_TRUE(log->append(entry(i)));
  EXPECT_EQ(found(*log), (std::vector<uint64_t>{1, 2, 3}));
}

TEST(RecordLogTest, AListThatIsBeingWrittenAnewDoesNotCountBeforeItIsWhole) {
  auto log = RecordLog::create(1 << 20);
  ASSERT_TRUE(log);
  for (uint64_t i = 1; i <= 3; ++i) log->append(entry(i));
  for (uint64_t round = 0; round < 3; ++round) {
    const std::vector<uint64_t> before = found(*log);
    log->begin_anew();
    log->append(entry(10 + round));
    EXPECT_EQ(found(*log), before);
    log->publish();
    log->append(entry(20 + round));
    EXPECT_EQ(found(*log), (std::vector<uint64_t>{10 + round, 20 + round}));
  }
}

TEST(RecordLogTest, TheNextProcessGoesOnWriting) {
  auto log = RecordLog::create(1 << 20);
  ASSERT_TRUE(log);
  log->append(entry(1));
  auto next = RecordLog::adopt(dup(log->fd()));
  ASSERT_TRUE(next);
  next->append(entry(2));
  EXPECT_EQ(found(*next), (std::vector<uint64_t>{1, 2}));
  next->begin_anew();
  next->append(entry(3));
  next->publish();
  EXPECT_EQ(found(*next), (std::vector<uint64_t>{3}));
}

TEST(RecordLogTest, OneThatHasNoRoomEndsForGood) {
  auto log = RecordLog::create(4096);
  ASSERT_TRUE(log);
  uint64_t written = 0;
  while (written < 10000 && log->append(entry(written))) ++written;
  EXPECT_GT(written, 100u);
  EXPECT_LT(written, 4096u);
  bool counts = true;
  EXPECT_TRUE(found(*log, &counts).empty());
  EXPECT_FALSE(counts) << "half of what happened is worse than nothing";
  log->begin_anew();
  EXPECT_FALSE(log->append(entry(1)));
  log->publish();
  found(*log, &counts);
  EXPECT_FALSE(counts);
}

TEST(RecordLogTest, SaysWhenItIsWorthWritingAnew) {
  auto log = RecordLog::create(8 << 20);
  ASSERT_TRUE(log);
  uint64_t written = 0;
  while (!log->long_grown()) {
    ASSERT_TRUE(log->append(entry(++written)));
    ASSERT_LT(written, 1'000'000u);
  }
  log->begin_anew();
  log->append(entry(0));
  log->publish();
  EXPECT_FALSE(log->long_grown());
}

TEST(RecordLogTest, OneThatIsLongFromTheBeginningIsNotWrittenAnewAllTheTime) {
  auto log = RecordLog::create(1 << 20);
  ASSERT_TRUE(log);
  constexpr uint64_t kMost = 70'000;  // some ten bytes each
  log->begin_anew();
  for (uint64_t i = 1; i <= kMost; ++i) ASSERT_TRUE(log->append(entry(i)));
  log->publish();
  for (uint64_t i = 1; i <= kMost / 10; ++i) {
    EXPECT_FALSE(log->long_grown()) << i;
    ASSERT_TRUE(log->append(entry(i)));
  }
  uint64_t more = 0;
  while (!log->long_grown()) ASSERT_TRUE(log->append(entry(++more)));
}

TEST(RecordLogTest, RefusesWhatItDidNotMake) {
  EXPECT_FALSE(RecordLog::adopt(memfd_create("not sealed", 0)));
  auto segment = transport::Segment::create(64 << 10);
  ASSERT_TRUE(segment);
  const auto other = RecordLog::adopt(dup(segment->fd()));
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message().find("another program"), std::string::npos);
  auto small = transport::Segment::create(4096);
  EXPECT_FALSE(RecordLog::adopt(dup(small->fd())));
}

TEST(RecordLogTest, BelievesNoLengthThatLeadsOutside) {
  auto log = RecordLog::create(4096);
  ASSERT_TRUE(log);
  log->append(entry(1));
  void* map = mmap(nullptr, 3 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, log->fd(), 0);
  ASSERT_NE(map, MAP_FAILED);
  std::byte* const half = static_cast<std::byte*>(map) + 4096;
  const uint32_t length = 100'000;  // of the entry
  std::memcpy(half + sizeof(uint64_t), &length, sizeof(length));
  bool counts = true;
  EXPECT_TRUE(found(*log, &counts).empty());
  EXPECT_FALSE(counts);
  const uint64_t in_use = 1 << 20;
  std::memcpy(half, &in_use, sizeof(in_use));
  EXPECT_FALSE(RecordLog::adopt(dup(log->fd())));
  munmap(map, 3 * 4096);
}

}  // namespace
}  // namespace gradring::daemon
