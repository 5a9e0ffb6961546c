#include <fcntl.h>

#include <cerrno>
#include <optional>

#include "transport/machine/port_sources.h"

namespace gradring::machine {
namespace {

// More come at once only of a device that is being taken apart.
constexpr int kEventsPerTurn = 256;

std::optional<PortChange> change_of(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_PORT_ERR:
      return PortChange::kDown;
    case IBV_EVENT_PORT_ACTIVE:
      return PortChange::kActive;
    case IBV_EVENT_GID_CHANGE:
      return PortChange::kAddresses;
    case IBV_EVENT_LID_CHANGE:
      return PortChange::kLid;
    case IBV_EVENT_PKEY_CHANGE:
      return PortChange::kPartitions;
    case IBV_EVENT_SM_CHANGE:
      return PortChange::kSubnetManager;
    case IBV_EVENT_CLIENT_REREGISTER:
      return PortChange::kReregistration;
    default:  // of queues, which are not ours
      return std::nullopt;
  }
}

}  // namespace

void DeviceEvents::open() {
  const VerbsLibrary* const verbs = verbs_library();
  if (verbs == nullptr) return;
  int count = 0;
  ibv_device** const list = verbs->get_device_list(&count);
  for (int i = 0; list != nullptr && i < count; ++i) {
    if (verbs->get_device_name(list[i]) == name_) context_.reset(verbs->open_device(list[i]));
  }
  if (list != nullptr) verbs->free_device_list(list);
  if (context_) fcntl(fd(), F_SETFL, fcntl(fd(), F_GETFL) | O_NONBLOCK);
}

void DeviceEvents::look() {
  if (!context_) open();
  if (!context_) return vanish();
  for (const uint32_t port : ports_) {
    ibv_port_attr now{};
    if (verbs_library()->query_port(context_.get(), static_cast<uint8_t>(port), &now) != 0) {
      return vanish();
    }
    change(port, now.state == IBV_PORT_ACTIVE ? PortChange::kActive : PortChange::kDown);
  }
}

void DeviceEvents::read(bool broken) {
  const VerbsLibrary* const verbs = verbs_library();
  for (int i = 0; i < kEventsPerTurn && context_; ++i) {
    ibv_async_event event{};
    errno = 0;
    if (verbs->get_async_event(context_.get(), &event) != 0) {
      if (broken || (errno != EAGAIN && errno != EINTR)) vanish();
      return;
    }
    heard(event);
    verbs->ack_async_event(&event);
    // What is left of the device is for the next look to find out.
    if (event.event_type == IBV_EVENT_DEVICE_FATAL) return vanish();
  }
}

void DeviceEvents::heard(const ibv_async_event& event) {
  const auto to = change_of(event.event_type);
  if (!to) return;
  const auto number = static_cast<uint32_t>(event.element.port_num);
  for (const uint32_t port : ports_) {
    if (port == number) change(port, *to);
  }
}

void DeviceEvents::change(uint32_t port, PortChange to) {
  if (to == PortChange::kDown || to == PortChange::kActive || to == PortChange::kGone) {
    const auto it = told_.find(port);
    if (it != told_.end() && it->second == to) return;
    const bool first = it == told_.end();
    told_[port] = to;
    if (first && to == PortChange::kActive) return;  // as it should be
  }
  tell_({name_, port}, to);
}

void DeviceEvents::vanish() {
  context_.reset();
  for (const uint32_t port : ports_) change(port, PortChange::kGone);
}

}  // namespace gradring::machine
