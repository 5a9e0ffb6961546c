#include "daemon/fd_store.h"

#include <fmt/format.h>
#include <systemd/sd-daemon.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "daemon/fd_name.h"

namespace gradring::daemon {
namespace {

// FileDescriptorStoreMax of our unit. systemd tells the true number from version 254 on ($FDSTORE).
constexpr size_t kDescriptorsMax = 4096;

size_t descriptors_max() {
  size_t most = kDescriptorsMax;
  if (const char* text = std::getenv("FDSTORE"); text != nullptr) {
    (void)std::from_chars(text, text + std::strlen(text), most);
  }
  return most;
}

}  // namespace

FdStore::FdStore() : keeps_(std::getenv("NOTIFY_SOCKET") != nullptr), most_(descriptors_max()) {
  char** names = nullptr;
  const int count = sd_listen_fds_with_names(/*unset_environment=*/1, &names);
  for (int i = 0; i < count; ++i) {
    std::string name = names[i];
    std::free(names[i]);
    Fd fd(SD_LISTEN_FDS_START + i);
    if (const auto [it, is_new] = held_.try_emplace(name); is_new) {
      it->second = std::move(fd);
      names_bytes_ += name.size() + 1;
    }
  }
  std::free(static_cast<void*>(names));
}

std::vector<std::string> FdStore::inherited() const {
  std::vector<std::string> names;
  for (const auto& [name, fd] : held_) {
    if (fd) names.push_back(name);
  }
  return names;
}

Fd FdStore::take(const std::string& name) {
  const auto it = held_.find(name);
  return it == held_.end() ? Fd() : std::move(it->second);
}

Status FdStore::keep(const std::string& name, int fd, Watch watch) {
  if (!keeps_) {
    return {Code::kUnavailable,
            "nobody keeps descriptors while gradringd restarts; run it under systemd or as "
            "gradringd --keep"};
  }
  if (!is_fd_name(name)) {
    return {Code::kInvalidArgument,
            fmt::format("'{}' cannot name a kept descriptor: 1 to 255 printable ASCII characters "
                        "without a colon can",
                        name)};
  }
  // A store that has the same open file already, under whatever name, ignores it; and one that has
  // another under this name keeps both.
  forget(name);
  if (held_.size() >= most_ || names_bytes_ + name.size() + 1 > kFdNamesBytesMax) {
    return {Code::kResourceExhausted,
            fmt::format("{} descriptors are kept already, with {} bytes of names; {} and {} are "
                        "the most (FileDescriptorStoreMax)",
                        held_.size(), names_bytes_, most_, kFdNamesBytesMax)};
  }
  const std::string message =
      fmt::format("FDSTORE=1\nFDNAME={}{}", name, watch == Watch::kPoll ? "" : "\nFDPOLL=0");
  const int sent = sd_pid_notify_with_fds(0, /*unset_environment=*/0, message.c_str(), &fd, 1);
  if (sent <= 0) {
    return {Code::kUnavailable, fmt::format("descriptor {} could not be handed to whoever keeps "
                                            "them ($NOTIFY_SOCKET): {}",
                                            name, std::strerror(-sent))};
  }
  held_.try_emplace(name);
  names_bytes_ += name.size() + 1;
  return {};
}

void FdStore::forget(const std::string& name) {
  const auto it = held_.find(name);
  if (it == held_.end()) return;
  const std::string message = fmt::format("FDSTOREREMOVE=1\nFDNAME={}", name);
  sd_notify(/*unset_environment=*/0, message.c_str());
  names_bytes_ -= name.size() + 1;
  held_.erase(it);
}

void FdStore::forget_rest() {
  for (const std::string& name : inherited()) forget(name);
}

void FdStore::forget_all() {
  while (!held_.empty()) forget(std::string(held_.begin()->first));
}

}  // namespace gradring::daemon
