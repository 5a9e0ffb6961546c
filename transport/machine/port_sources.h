#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/machine/port_watch.h"
#include "transport/machine/verbs_library.h"

namespace gradring::machine {

using TellChange = std::function<void(const PortId& port, PortChange change)>;

// The asynchronous events of one RDMA device. One thread.
class DeviceEvents {
 public:
  DeviceEvents(std::string name, std::vector<uint32_t> ports, TellChange tell)
      : name_(std::move(name)), ports_(std::move(ports)), tell_(std::move(tell)) {}

  // -1 while it is not open.
  int fd() const { return context_ ? context_->async_fd : -1; }
  // Opens it if it is not, and tells of ports whose state is another than the one that was told:
  // so nothing stays untold that was missed.
  void look();
  // What has come. `broken`: poll() says that nothing more will.
  void read(bool broken);

 private:
  struct Close {
    void operator()(ibv_context* context) const { verbs_library()->close_device(context); }
  };
  void open();
  void vanish();
  void heard(const ibv_async_event& event);
  void change(uint32_t port, PortChange to);

  const std::string name_;
  const std::vector<uint32_t> ports_;
  const TellChange tell_;
  std::unique_ptr<ibv_context, Close> context_;
  std::map<uint32_t, PortChange> told_;  // of kDown, kActive, kGone
};

// The links of network interfaces of this network namespace, by rtnetlink(7). One thread.
class LinkEvents {
 public:
  LinkEvents(std::vector<std::string> interfaces, TellChange tell);
  ~LinkEvents();
  LinkEvents(const LinkEvents&) = delete;
  LinkEvents& operator=(const LinkEvents&) = delete;

  int fd() const { return socket_; }  // -1: there are none
  void look();
  void read();

 private:
  void change(const std::string& interface, PortChange to);

  const std::vector<std::string> interfaces_;
  const TellChange tell_;
  int socket_ = -1;
  std::map<std::string, PortChange> told_;
};

}  // namespace gradring::machine
