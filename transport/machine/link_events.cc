#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "transport/machine/port_sources.h"

namespace gradring::machine {
namespace {

constexpr int kMessagesPerTurn = 256;

PortChange state_of_flags(unsigned flags) {
  constexpr unsigned kWorks = IFF_UP | IFF_RUNNING;
  return (flags & kWorks) == kWorks ? PortChange::kActive : PortChange::kDown;
}

std::string name_in(const nlmsghdr* message) {
  const auto* info = static_cast<const ifinfomsg*>(NLMSG_DATA(message));
  auto left = static_cast<int>(IFLA_PAYLOAD(message));
  for (const rtattr* one = IFLA_RTA(info); RTA_OK(one, left); one = RTA_NEXT(one, left)) {
    if (one->rta_type != IFLA_IFNAME) continue;
    const auto* text = static_cast<const char*>(RTA_DATA(one));
    return {text, strnlen(text, RTA_PAYLOAD(one))};
  }
  return "";
}

}  // namespace

LinkEvents::LinkEvents(std::vector<std::string> interfaces, TellChange tell)
    : interfaces_(std::move(interfaces)), tell_(std::move(tell)) {
  if (interfaces_.empty()) return;
  socket_ = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK;
  if (socket_ >= 0 && bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    close(socket_);
    socket_ = -1;
  }
}

LinkEvents::~LinkEvents() {
  if (socket_ >= 0) close(socket_);
}

void LinkEvents::look() {
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (any < 0) return;
  for (const std::string& interface : interfaces_) {
    ifreq request{};
    std::strncpy(request.ifr_name, interface.c_str(), sizeof request.ifr_name - 1);
    if (ioctl(any, SIOCGIFFLAGS, &request) == 0) {
      change(interface, state_of_flags(static_cast<unsigned short>(request.ifr_flags)));
    } else if (errno == ENODEV) {
      change(interface, PortChange::kGone);
    }
  }
  close(any);
}

// Each message is taken by itself: a link that is down and up again within one turn was down.
void LinkEvents::read() {
  alignas(nlmsghdr) std::array<char, 32768> part{};
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    const ssize_t bytes = recv(socket_, part.data(), part.size(), 0);
    if (bytes < 0 && errno == ENOBUFS) return look();  // some were lost
    if (bytes <= 0) return;
    auto left = static_cast<unsigned>(bytes);
    for (const auto* message = reinterpret_cast<const nlmsghdr*>(part.data());
         NLMSG_OK(message, left); message = NLMSG_NEXT(message, left)) {
      if (message->nlmsg_type != RTM_NEWLINK && message->nlmsg_type != RTM_DELLINK) continue;
      if (message->nlmsg_len < NLMSG_LENGTH(sizeof(ifinfomsg))) continue;
      const std::string name = name_in(message);
      if (std::find(interfaces_.begin(), interfaces_.end(), name) == interfaces_.end()) continue;
      const auto* info = static_cast<const ifinfomsg*>(NLMSG_DATA(message));
      change(name, message->nlmsg_type == RTM_DELLINK ? PortChange::kGone
                                                      : state_of_flags(info->ifi_flags));
    }
  }
}

void LinkEvents::change(const std::string& interface, PortChange to) {
  const auto it = told_.find(interface);
  if (it != told_.end() && it->second == to) return;
  const bool first = it == told_.end();
  told_[interface] = to;
  if (!first || to != PortChange::kActive) tell_({interface, 0}, to);
}

}  // namespace gradring::machine
