#include "daemon/keep/kept_fds.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "daemon/fd_name.h"

namespace gradring::keep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Fd memory() { return Fd(memfd_create("kept", MFD_CLOEXEC)); }
Fd copy_of(const Fd& fd) { return Fd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)); }

std::pair<Fd, Fd> connected() {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

std::vector<std::string> names_of(const KeptFds& kept) {
  std::vector<std::string> names;
  for (const KeptFds::Kept& one : kept.all()) names.push_back(one.name);
  return names;
}

TEST(KeptFds, ManyMayHaveOneNameAndGoTogether) {
  KeptFds kept(8);
  EXPECT_EQ(kept.add("a", memory(), true), "");
  EXPECT_EQ(kept.add("b", memory(), true), "");
  EXPECT_EQ(kept.add("a", memory(), false), "");
  EXPECT_THAT(names_of(kept), ElementsAre("a", "b", "a"));
  EXPECT_EQ(kept.remove("a"), 2u);
  EXPECT_THAT(names_of(kept), ElementsAre("b"));
  EXPECT_EQ(kept.remove("a"), 0u);
}

TEST(KeptFds, AnOpenFileIsKeptOnceUnderItsFirstName) {
  KeptFds kept(8);
  const Fd one = memory();
  EXPECT_EQ(kept.add("first", copy_of(one), true), "");
  EXPECT_EQ(kept.add("second", copy_of(one), true), "");
  EXPECT_THAT(names_of(kept), ElementsAre("first"));
  // These share an inode and are not the same.
  EXPECT_EQ(kept.add("event", Fd(eventfd(0, EFD_CLOEXEC)), false), "");
  EXPECT_EQ(kept.add("event", Fd(eventfd(0, EFD_CLOEXEC)), false), "");
  EXPECT_THAT(names_of(kept), ElementsAre("first", "event", "event"));
}

TEST(KeptFds, TheirNumberIsBoundedInWords) {
  KeptFds kept(2);
  EXPECT_EQ(kept.add("a", memory(), true), "");
  EXPECT_EQ(kept.add("b", memory(), true), "");
  EXPECT_THAT(kept.add("c", memory(), true), HasSubstr("2 descriptors"));
  EXPECT_EQ(kept.remove("a"), 1u);
  EXPECT_EQ(kept.add("c", memory(), true), "");
  EXPECT_THAT(kept.add("d", Fd(), true), HasSubstr("no descriptor"));
}

TEST(KeptFds, TheirNamesFitOneVariable) {
  KeptFds kept(100000);
  const std::string name(255, 'x');
  size_t count = 0;
  while (kept.add(name, memory(), false).empty()) ++count;
  EXPECT_EQ(count, daemon::kFdNamesBytesMax / 256);
  EXPECT_EQ(kept.remove(name), count);
  EXPECT_EQ(kept.add(name, memory(), false), "");
}

TEST(KeptFds, OnesThatHangUpAreLetGo) {
  KeptFds kept(8);
  auto [watched, its_end] = connected();
  auto [unwatched, other_end] = connected();
  const Fd elsewhere = copy_of(watched);  // as the daemon has one
  EXPECT_EQ(kept.add("watched", std::move(watched), true), "");
  EXPECT_EQ(kept.add("unwatched", std::move(unwatched), false), "");
  EXPECT_THAT(kept.drop_hung_up(), IsEmpty());
  its_end.reset();
  other_end.reset();
  pollfd readable{kept.watch_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&readable, 1, 1000), 1);
  EXPECT_THAT(kept.drop_hung_up(), ElementsAre("watched"));
  EXPECT_THAT(names_of(kept), ElementsAre("unwatched"));
  EXPECT_EQ(poll(&readable, 1, 0), 0) << "and are not told again";
}

TEST(KeptFds, OnesThatWereRemovedAreNotWatchedAnyMore) {
  KeptFds kept(8);
  auto [watched, its_end] = connected();
  const Fd elsewhere = copy_of(watched);
  EXPECT_EQ(kept.add("a", std::move(watched), true), "");
  EXPECT_EQ(kept.remove("a"), 1u);
  its_end.reset();
  pollfd readable{kept.watch_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&readable, 1, 0), 0);
}

}  // namespace
}  // namespace gradring::keep
