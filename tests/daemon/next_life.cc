#include "tests/daemon/next_life.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>

namespace gradring::daemon {
namespace {

void line_up(const std::vector<std::pair<std::string, int>>& kept) {
  constexpr int kFirst = 3, kAside = 100;
  std::vector<int> aside;
  for (const auto& [name, fd] : kept) aside.push_back(fcntl(fd, F_DUPFD_CLOEXEC, kAside));
  int place = kFirst;
  for (const int fd : aside) dup2(fd, place++);
  std::string names;
  for (const auto& [name, fd] : kept) names += (names.empty() ? "" : ":") + name;
  setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
  setenv("LISTEN_FDS", std::to_string(kept.size()).c_str(), 1);
  setenv("LISTEN_FDNAMES", names.c_str(), 1);
}

}  // namespace

std::string in_next_life(const std::vector<std::pair<std::string, int>>& kept,
                         const std::function<std::string()>& look) {
  constexpr int kTold = 99;
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], kTold);
    line_up(kept);
    const std::string complaint = look();
    _exit(write(kTold, complaint.data(), complaint.size()) < 0 ? 1 : 0);
  }
  close(ends[1]);
  std::string complaint;
  std::array<char, 4096> some{};
  for (ssize_t size = 0; (size = read(ends[0], some.data(), some.size())) > 0;) {
    complaint.append(some.data(), static_cast<size_t>(size));
  }
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  return status == 0 ? complaint : "ended with status " + std::to_string(status);
}

FakeManager::FakeManager()
    : path_((std::filesystem::temp_directory_path() /
             ("gradring-manager-" + std::to_string(getpid())))
                .string()),
      socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path_.copy(address.sun_path, sizeof address.sun_path - 1);
  unlink(path_.c_str());
  EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  setenv("NOTIFY_SOCKET", path_.c_str(), 1);
}

FakeManager::~FakeManager() {
  unsetenv("NOTIFY_SOCKET");
  close(socket_);
  unlink(path_.c_str());
}

std::string FakeManager::heard() {
  std::array<char, 4096> bytes;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control;
  iovec data{bytes.data(), bytes.size()};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t size = recvmsg(socket_, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) return "";
  std::string text(bytes.data(), static_cast<size_t>(size));
  for (char& c : text) c = c == '\n' ? '|' : c;
  const cmsghdr* part = CMSG_FIRSTHDR(&header);
  if (part == nullptr || part->cmsg_type != SCM_RIGHTS) return text;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(part), sizeof fd);
  text += "|" + std::to_string(inode_of(fd));
  close(fd);
  return text;
}

ino_t inode_of(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

}  // namespace gradring::daemon
