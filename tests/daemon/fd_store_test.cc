#include "daemon/fd_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "daemon/fd_name.h"
#include "tests/daemon/next_life.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

Fd memory() { return Fd(memfd_create("kept", MFD_CLOEXEC)); }

TEST(FdName, IsWhatSystemdTakes) {
  EXPECT_TRUE(is_fd_name("attach.sock"));
  EXPECT_TRUE(is_fd_name("seg.1f.7 ~!"));
  EXPECT_TRUE(is_fd_name(std::string(255, 'x')));
  for (const char* name : {"", "a:b", "a\nb", "a\tb", "a\x7f", "\xc3\xa4"}) {
    EXPECT_FALSE(is_fd_name(name)) << name;
  }
  EXPECT_FALSE(is_fd_name(std::string(256, 'x')));
}

TEST(FdStore, SaysSoWhenNobodyKeeps) {
  unsetenv("NOTIFY_SOCKET");
  FdStore store;
  const Fd fd = memory();
  EXPECT_FALSE(store.somebody_keeps());
  const Status status = store.keep("a", fd.get());
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("--keep"));
  store.forget("a");
  EXPECT_FALSE(store.take("a"));
}

TEST(FdStore, HandsOverByNameAndForgets) {
  FakeManager manager;
  FdStore store;
  const Fd fd = memory();
  EXPECT_TRUE(store.keep("a", fd.get()).ok());
  EXPECT_EQ(manager.heard(), fmt::format("FDSTORE=1|FDNAME=a|FDPOLL=0|{}", inode_of(fd.get())));
  EXPECT_TRUE(store.keep("b", fd.get(), FdStore::Watch::kPoll).ok());
  EXPECT_EQ(manager.heard(), fmt::format("FDSTORE=1|FDNAME=b|{}", inode_of(fd.get())));
  store.forget("a");
  EXPECT_EQ(manager.heard(), "FDSTOREREMOVE=1|FDNAME=a");
  store.forget("a");
  store.forget("never kept");
  EXPECT_EQ(manager.heard(), "");
  store.forget_all();
  EXPECT_EQ(manager.heard(), "FDSTOREREMOVE=1|FDNAME=b");
  EXPECT_EQ(manager.heard(), "");
}

TEST(FdStore, ANameIsHeldOnce) {
  FakeManager manager;
  FdStore store;
  const Fd first = memory(), second = memory();
  EXPECT_TRUE(store.keep("a", first.get()).ok());
  EXPECT_THAT(manager.heard(), HasSubstr("FDSTORE=1"));
  EXPECT_TRUE(store.keep("a", second.get()).ok());
  EXPECT_EQ(manager.heard(), "FDSTOREREMOVE=1|FDNAME=a");
  EXPECT_EQ(manager.heard(), fmt::format("FDSTORE=1|FDNAME=a|FDPOLL=0|{}", inode_of(second.get())));
}

TEST(FdStore, WhatWouldBeDroppedIsRefusedInWords) {
  FakeManager manager;
  setenv("FDSTORE", "2", 1);
  FdStore store;
  unsetenv("FDSTORE");
  const Fd fd = memory();
  for (const std::string& name : {std::string(), std::string("a:b"), std::string(256, 'x')}) {
    EXPECT_EQ(store.keep(name, fd.get()).code(), Code::kInvalidArgument) << name;
  }
  EXPECT_TRUE(store.keep("a", fd.get()).ok());
  EXPECT_TRUE(store.keep("b", fd.get()).ok());
  const Status full = store.keep("c", fd.get());
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("FileDescriptorStoreMax"));
  store.forget("a");
  EXPECT_TRUE(store.keep("c", fd.get()).ok());
}

TEST(FdStore, NamesThatNoProgramCouldBeStartedWithAreRefused) {
  FakeManager manager;
  FdStore store;
  const Fd fd = memory();
  size_t kept = 0;
  const auto name = [](size_t i) { return fmt::format("{:0>250}", i); };
  while (kept < 4096 && store.keep(name(kept), fd.get()).ok()) {
    EXPECT_NE(manager.heard(), "");
    ++kept;
  }
  EXPECT_EQ(kept, kFdNamesBytesMax / 251);
  store.forget(name(0));
  EXPECT_TRUE(store.keep(name(kept), fd.get()).ok());
}

TEST(FdStore, TheNextLifeFindsWhatWasKept) {
  const Fd a = memory(), b = memory(), rest = memory();
  const ino_t inode_of_a = inode_of(a.get()), inode_of_b = inode_of(b.get());
  FakeManager manager;
  const std::string complaint =
      in_next_life({{"b", b.get()}, {"a", a.get()}, {"rest", rest.get()}}, [&]() -> std::string {
        FdStore store;
        if (getenv("LISTEN_FDS") != nullptr) return "the environment still has it";
        if (store.inherited() != std::vector<std::string>{"a", "b", "rest"}) return "names";
        const Fd taken = store.take("a");
        if (inode_of(taken.get()) != inode_of_a) return "a is not a";
        if ((fcntl(taken.get(), F_GETFD) & FD_CLOEXEC) == 0) return "a is passed on";
        if (store.take("a")) return "a is there twice";
        if (inode_of(store.take("b").get()) != inode_of_b) return "b is not b";
        if (store.inherited() != std::vector<std::string>{"rest"}) return "what was taken is left";
        store.forget_rest();
        if (store.take("rest")) return "rest is still there";
        return "";
      });
  EXPECT_EQ(complaint, "");
  EXPECT_EQ(manager.heard(), "FDSTOREREMOVE=1|FDNAME=rest");
  EXPECT_EQ(manager.heard(), "");
}

}  // namespace
}  // namespace gradring::daemon
