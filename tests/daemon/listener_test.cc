#include "daemon/control/door/listener.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/control/door/lock_file.h"
#include "daemon/control/sessions/attach.h"
#include "tests/daemon/next_life.h"
#include "tests/daemon/scratch.h"

namespace gradring::daemon {
namespace {

using testing::AllOf;
using testing::HasSubstr;

int try_to_connect(const Fd& socket, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

Fd packet_socket() { return Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)); }

TEST(RuntimeDir, OfAnotherUserIsARisk) {
  const Scratch scratch;
  EXPECT_EQ(risk_of_runtime_dir(scratch.directory()), "");
  EXPECT_EQ(risk_of_runtime_dir(scratch.path("is not there yet")), "");
  if (geteuid() != 0) GTEST_SKIP() << "only root gives directories away";
  ASSERT_EQ(chmod(scratch.directory().c_str(), 0777), 0);
  EXPECT_EQ(risk_of_runtime_dir(scratch.directory()), "") << "root has opened it to all";
  ASSERT_EQ(chown(scratch.directory().c_str(), 1234, 0), 0);
  EXPECT_THAT(risk_of_runtime_dir(scratch.directory()),
              AllOf(HasSubstr("belongs to uid 1234"), HasSubstr("chown 0 " + scratch.directory())));
}

class Listener : public testing::Test {
 protected:
  // The descriptor under that name in a next life, and what open_listener() makes of it there:
  // whether it goes on with the same socket.
  std::string goes_on(const std::string& name, int fd) {
    const ino_t kept = inode_of(fd);
    return in_next_life({{name, fd}}, [&]() -> std::string {
      FdStore store;
      const auto listener = open_listener(path_, SOCK_SEQPACKET, &store);
      if (!listener) return listener.error().message();
      if (try_to_connect(packet_socket(), path_) != 0) return "nobody is reached";
      pollfd readable{listener->get(), POLLIN, 0};
      if (poll(&readable, 1, 0) != 1) return "somebody else is reached";
      return inode_of(listener->get()) == kept ? "goes on" : "is new";
    });
  }

  Scratch scratch_;
  const std::string path_ = scratch_.path("attach.sock");
  FakeManager manager_;
};

TEST_F(Listener, IsKeptUnderTheNameOfItsFile) {
  FdStore store;
  const auto listener = open_listener(path_, SOCK_SEQPACKET, &store);
  ASSERT_TRUE(listener) << listener.error().message();
  EXPECT_EQ(manager_.heard(),
            fmt::format("FDSTORE=1|FDNAME=attach.sock|FDPOLL=0|{}", inode_of(listener->get())));
  remove_listener(path_, &store);
  EXPECT_EQ(manager_.heard(), "FDSTOREREMOVE=1|FDNAME=attach.sock");
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
}

TEST_F(Listener, ItsModeIsGivenToNoOtherFile) {
  const auto mode_of = [](const std::string& path) {
    struct stat state {};
    return stat(path.c_str(), &state) == 0 ? state.st_mode & 07777 : 0;
  };
  FdStore store;
  const auto listener = open_listener(path_, SOCK_SEQPACKET, &store);
  ASSERT_TRUE(set_access(path_, 0622, "").ok());
  EXPECT_EQ(mode_of(path_), 0622u);

  const std::string secret = scratch_.path("secret");
  const Fd file(open(secret.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(unlink(path_.c_str()), 0);
  ASSERT_EQ(symlink(secret.c_str(), path_.c_str()), 0);
  EXPECT_THAT(set_access(path_, 0666, "").message(), HasSubstr("is not the socket any more"));
  EXPECT_EQ(mode_of(secret), 0600u);
  ASSERT_EQ(rename(secret.c_str(), path_.c_str()), 0);
  EXPECT_FALSE(set_access(path_, 0666, "").ok());
  EXPECT_EQ(mode_of(path_), 0600u);
}

TEST_F(Listener, GoesOnWithWhoeverConnectedInTheGap) {
  FdStore store;
  const auto listener = open_listener(path_, SOCK_SEQPACKET, &store);
  ASSERT_TRUE(listener);
  const Fd waiting = packet_socket();
  ASSERT_EQ(try_to_connect(waiting, path_), 0);
  ASSERT_EQ(send(waiting.get(), "hello", 5, 0), 5);
  EXPECT_EQ(in_next_life({{"attach.sock", listener->get()}},
                         [&]() -> std::string {
                           FdStore next;
                           const auto same = open_listener(path_, SOCK_SEQPACKET, &next);
                           if (!same) return same.error().message();
                           const Fd accepted(accept(same->get(), nullptr, nullptr));
                           char said[8] = {};
                           recv(accepted.get(), said, sizeof said, 0);
                           return said;
                         }),
            "hello");
  EXPECT_EQ(goes_on("attach.sock", listener->get()), "goes on");
}

TEST_F(Listener, IsNewWhenItsFileLeadsElsewhere) {
  FdStore store;
  const auto listener = open_listener(path_, SOCK_SEQPACKET, &store);
  ASSERT_TRUE(listener);
  unlink(path_.c_str());
  EXPECT_EQ(goes_on("attach.sock", listener->get()), "is new") << "the file is gone";
  // What that life left is a stranger's now, and alive as long as somebody keeps it.
  EXPECT_EQ(access(path_.c_str(), F_OK), 0);
  EXPECT_EQ(goes_on("attach.sock", listener->get()), "is new");
  while (!manager_.heard().empty()) continue;
  EXPECT_EQ(goes_on("attach.sock", listener->get()), "is new") << "stale now";
}

TEST_F(Listener, IsNewWhenWhatWasKeptIsSomethingElse) {
  FdStore store;
  const auto listener = open_listener(path_, SOCK_SEQPACKET, &store);
  const auto other_path = open_listener(scratch_.path("other.sock"), SOCK_SEQPACKET, &store);
  const Fd not_listening = packet_socket();
  ASSERT_TRUE(listener && other_path);
  EXPECT_EQ(goes_on("other.sock", listener->get()), "is new");
  EXPECT_EQ(goes_on("attach.sock", other_path->get()), "is new");
  EXPECT_EQ(goes_on("attach.sock", not_listening.get()), "is new");
}

TEST_F(Listener, WhatCannotBeOpenedIsNamed) {
  FdStore store;
  const auto listener = open_listener("/proc/attach.sock", SOCK_SEQPACKET, &store);
  ASSERT_FALSE(listener);
  EXPECT_THAT(listener.error().message(), HasSubstr("/proc/attach.sock"));
}

}  // namespace
}  // namespace gradring::daemon
