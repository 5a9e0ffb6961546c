#include "transport/loopback/fabric.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "transport/loopback/loopback_transport.h"
#include "transport/loopback/state.h"

namespace gradring::transport {

Fabric::Fabric(uint64_t seed) : state_(std::make_shared<State>(seed)) {}

std::unique_ptr<Transport> Fabric::join(const std::string& name) {
  size_t self = 0;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->find(name))
      throw std::invalid_argument("a living member of the fabric is named " + name);
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    self = state_->members.size();
    state_->members.emplace_back();
    state_->members[self].name = name;
    state_->members[self].event_fd = fd;
  }
  return std::make_unique<LoopbackTransport>(state_, self);
}

void Fabric::set_faults(const std::string& from, const std::string& to, const LinkFaults& faults) {
  const std::lock_guard lock(state_->mutex);
  State::Weather& sky = state_->weather_of(from, to);
  sky.faults = faults;
  sky.accepted = 0;
}

void Fabric::break_link(const std::string& a, const std::string& b) {
  const std::lock_guard lock(state_->mutex);
  const auto first = state_->find(a);
  const auto second = state_->find(b);
  if (!first || !second) return;  // the dead have no links
  state_->close_between(*first, *second, "injected break");
  state_->close_between(*second, *first, "injected break");
}

void Fabric::kill(const std::string& node) {
  const std::lock_guard lock(state_->mutex);
  if (const auto member = state_->find(node)) state_->bury(*member, "its node was killed");
}

void Fabric::stop(const std::string& node) {
  const std::lock_guard lock(state_->mutex);
  state_->stopped.insert(node);
}

}  // namespace gradring::transport
