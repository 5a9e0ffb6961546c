#include "transport/shm/segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

namespace gradring::transport {
namespace {

using ::testing::HasSubstr;

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

Segment make(uint64_t bytes) {
  auto segment = Segment::create(bytes);
  EXPECT_TRUE(segment.has_value()) << (segment ? "" : segment.error().message());
  return std::move(segment.value());
}

// What a trainer does with the descriptor it was sent: its own mapping of the same pages.
class Trainer {
 public:
  explicit Trainer(const Segment& segment)
      : fd_(dup(segment.fd())), size_(segment.memory().size()) {
    memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    EXPECT_NE(memory_, MAP_FAILED);
  }
  ~Trainer() { leave(); }
  void leave() {
    if (fd_ < 0) return;
    munmap(memory_, size_);
    close(fd_);
    fd_ = -1;
  }
  int fd() const { return fd_; }
  std::span<std::byte> memory() const { return {static_cast<std::byte*>(memory_), size_}; }

 private:
  int fd_;
  size_t size_;
  void* memory_;
};

size_t open_descriptors() {
  using Iterator = std::filesystem::directory_iterator;
  return static_cast<size_t>(std::distance(Iterator("/proc/self/fd"), Iterator()));
}

bool all_are(std::span<const std::byte> bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [=](std::byte b) { return b == value; });
}

TEST(Segment, SizeIsRoundedUpToWholePages) {
  EXPECT_EQ(make(1).memory().size(), kPage);
  EXPECT_EQ(make(kPage - 1).memory().size(), kPage);
  EXPECT_EQ(make(kPage).memory().size(), kPage);
  EXPECT_EQ(make(kPage + 1).memory().size(), 2 * kPage);
  const Segment segment = make(5 * kPage + 17);
  struct stat status {};
  ASSERT_EQ(fstat(segment.fd(), &status), 0);
  EXPECT_EQ(static_cast<size_t>(status.st_size), segment.memory().size());
  EXPECT_EQ(segment.memory().size(), 6 * kPage);
}

TEST(Segment, StartsAsZerosOnAPageBoundary) {
  const Segment segment = make(3 * kPage);
  EXPECT_TRUE(all_are(segment.memory(), std::byte{0}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(segment.memory().data()) % kPage, 0u);
}

TEST(Segment, APageThatNobodyCanTouchLiesBehind) {
  const auto segment = Segment::create(1);
  ASSERT_TRUE(segment);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const std::byte* const behind = segment->memory().data() + segment->memory().size();
  EXPECT_EQ(write(ends[1], behind - 1, 1), 1);
  EXPECT_EQ(write(ends[1], behind, 1), -1);
  EXPECT_EQ(errno, EFAULT);
  for (const int end : ends) close(end);
}

TEST(Segment, IsSealedAndClosedOnExec) {
  const Segment segment = make(kPage);
  const int seals = fcntl(segment.fd(), F_GET_SEALS);
  EXPECT_EQ(seals, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_EQ(seals & F_SEAL_WRITE, 0) << "results are written into it";
  EXPECT_TRUE(fcntl(segment.fd(), F_GETFD) & FD_CLOEXEC);
}

TEST(Segment, ATrainerCannotChangeItsSizeOrItsSeals) {
  const Segment segment = make(4 * kPage);
  const Trainer trainer(segment);
  for (const size_t size : {size_t{0}, kPage, 8 * kPage}) {
    EXPECT_EQ(ftruncate(trainer.fd(), static_cast<off_t>(size)), -1) << size;
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_EQ(fcntl(trainer.fd(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
  std::memset(segment.memory().data(), 1, segment.memory().size());
  EXPECT_TRUE(all_are(trainer.memory(), std::byte{1}));
}

TEST(Segment, AHolePunchedByATrainerReadsAsZerosAndDoesNotFault) {
  const Segment segment = make(4 * kPage);
  const Trainer trainer(segment);
  std::memset(segment.memory().data(), 0x5a, segment.memory().size());
  ASSERT_EQ(fallocate(trainer.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(kPage), static_cast<off_t>(2 * kPage)),
            0);
  EXPECT_TRUE(all_are(segment.memory().first(kPage), std::byte{0x5a}));
  EXPECT_TRUE(all_are(segment.memory().subspan(kPage, 2 * kPage), std::byte{0}));
  EXPECT_TRUE(all_are(segment.memory().last(kPage), std::byte{0x5a}));
  segment.memory()[kPage] = std::byte{7};
  EXPECT_EQ(trainer.memory()[kPage], std::byte{7});
}

TEST(Segment, OutlivesTheTrainersMapping) {
  const Segment segment = make(2 * kPage);
  Trainer trainer(segment);
  std::memset(trainer.memory().data(), 0x21, trainer.memory().size());
  trainer.leave();
  EXPECT_TRUE(all_are(segment.memory(), std::byte{0x21}));
}

TEST(Segment, TheTrainersMappingOutlivesIt) {
  std::optional<Segment> segment(make(2 * kPage));
  const Trainer trainer(*segment);
  std::memset(segment->memory().data(), 0x42, segment->memory().size());
  segment.reset();
  EXPECT_TRUE(all_are(trainer.memory(), std::byte{0x42}));
}

TEST(Segment, IsAdoptedWithWhatIsInIt) {
  std::optional<Segment> first(make(3 * kPage));
  first->memory()[kPage] = std::byte{0x77};
  const int kept = dup(first->fd());
  first.reset();
  const auto second = Segment::adopt(kept);
  ASSERT_TRUE(second.has_value()) << second.error().message();
  EXPECT_EQ(second->fd(), kept);
  EXPECT_EQ(second->memory().size(), 3 * kPage);
  EXPECT_EQ(second->memory()[kPage], std::byte{0x77});
  const Trainer trainer(*second);
  second->memory()[0] = std::byte{1};
  EXPECT_EQ(trainer.memory()[0], std::byte{1});
}

TEST(Segment, WhatIsNoSegmentIsNotAdoptedAndClosed) {
  const size_t before = open_descriptors();
  const auto memory = [](size_t size, int seals) {
    const int fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(size)), 0);
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
  };
  constexpr int kAll = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const std::pair<int, const char*> impostors[] = {
      {open("/dev/null", O_RDWR | O_CLOEXEC), "not sealed"},
      {open("/etc/passwd", O_RDONLY | O_CLOEXEC), "not sealed"},
      {memory(kPage, F_SEAL_SHRINK | F_SEAL_SEAL), "not sealed"},
      {memory(kPage, F_SEAL_SHRINK | F_SEAL_GROW), "not sealed"},
      {memory(kPage, kAll | F_SEAL_WRITE), "not sealed"},
      {memory(0, kAll), "0 bytes"},
      {memory(kPage + 1, kAll), "whole pages"},
      {-1, "not sealed"},
  };
  for (const auto& [fd, words] : impostors) {
    const auto segment = Segment::adopt(fd);
    ASSERT_FALSE(segment.has_value()) << words;
    EXPECT_EQ(segment.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(segment.error().message(), HasSubstr(words));
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(Segment, AbsurdSizesAreRefusedInWords) {
  const auto nothing = Segment::create(0);
  ASSERT_FALSE(nothing.has_value());
  EXPECT_EQ(nothing.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(nothing.error().message(), HasSubstr("at least 1 byte"));

  for (const uint64_t bytes : {(uint64_t{1} << 62) + 1, UINT64_MAX}) {
    const auto beyond = Segment::create(bytes);
    ASSERT_FALSE(beyond.has_value());
    EXPECT_EQ(beyond.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(beyond.error().message(), HasSubstr(std::to_string(bytes)));
  }
}

TEST(Segment, MoreThanTheMachineHasIsRefusedAndLeaksNothing) {
  const size_t before = open_descriptors();
  for (const uint64_t bytes : {uint64_t{1} << 61, uint64_t{1} << 62}) {
    const auto huge = Segment::create(bytes);
    ASSERT_FALSE(huge.has_value());
    EXPECT_EQ(huge.error().code(), Code::kResourceExhausted);
    EXPECT_THAT(huge.error().message(), HasSubstr("ask for less"));
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(Segment, NoDescriptorLeftIsRefusedWithTheLimitToRaise) {
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  const rlimit none{0, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto segment = Segment::create(kPage);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  ASSERT_FALSE(segment.has_value());
  EXPECT_EQ(segment.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(segment.error().message(), HasSubstr("LimitNOFILE"));
}

TEST(Segment, MovesAndDoesNotCopy) {
  static_assert(!std::is_copy_constructible_v<Segment>);
  static_assert(!std::is_copy_assignable_v<Segment>);
  static_assert(std::is_nothrow_move_constructible_v<Segment>);

  Segment first = make(kPage);
  const int fd = first.fd();
  first.memory()[0] = std::byte{9};
  Segment second(std::move(first));
  EXPECT_EQ(second.fd(), fd);
  EXPECT_EQ(second.memory()[0], std::byte{9});
  EXPECT_EQ(first.fd(), -1);  // NOLINT(bugprone-use-after-move): what a moved-from segment is
  EXPECT_TRUE(first.memory().empty());

  Segment third = make(2 * kPage);
  const int replaced = third.fd();
  third = std::move(second);
  EXPECT_EQ(third.fd(), fd);
  EXPECT_EQ(third.memory().size(), kPage);
  EXPECT_EQ(fcntl(replaced, F_GETFD), -1) << "assignment closes what was there";

  Segment& itself = third;
  third = std::move(itself);
  EXPECT_EQ(third.fd(), fd);
  EXPECT_EQ(third.memory()[0], std::byte{9});
}

TEST(Segment, ClosesAndUnmapsAtTheEnd) {
  const size_t before = open_descriptors();
  void* address = nullptr;
  {
    const Segment segment = make(kPage);
    address = segment.memory().data();
    EXPECT_EQ(open_descriptors(), before + 1);
  }
  // First of all, before an allocation can be given the same address.
  EXPECT_EQ(msync(address, kPage, MS_ASYNC), -1);
  EXPECT_EQ(errno, ENOMEM) << "the address is still mapped";
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace gradring::transport
