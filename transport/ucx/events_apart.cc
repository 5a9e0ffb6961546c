#include "transport/ucx/events_apart.h"

#include <dlfcn.h>
#include <ucs/sys/event_set.h>

#include <atomic>

namespace gradring::transport {
namespace {

using Wait = ucs_status_t (*)(ucs_sys_event_set_t*, unsigned*, int, ucs_event_set_handler_t, void*);

std::atomic<uint64_t> waits{0};

struct Listener {
  ucs_event_set_handler_t handler;
  void* argument;
};

// By lot, so that neither kind starves, whatever other sockets do in between.
bool heads() {
  thread_local uint32_t state = 2463534242u;
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return (state & 1) != 0;
}

void hand_one(void* data, ucs_event_set_types_t events, void* listener) {
  constexpr ucs_event_set_types_t kBoth = UCS_EVENT_SET_EVREAD | UCS_EVENT_SET_EVWRITE;
  if ((events & kBoth) == kBoth) {
    const int left_out = heads() ? UCS_EVENT_SET_EVREAD : UCS_EVENT_SET_EVWRITE;
    events = static_cast<ucs_event_set_types_t>(events & ~left_out);
  }
  const auto* const to = static_cast<const Listener*>(listener);
  to->handler(data, events, to->argument);
}

}  // namespace

uint64_t waits_seen() { return waits.load(std::memory_order_relaxed); }

}  // namespace gradring::transport

// UCX's own, which is asked behind this one.
extern "C" __attribute__((visibility("default"))) ucs_status_t ucs_event_set_wait(
    ucs_sys_event_set_t* event_set, unsigned* num_events, int timeout_ms,
    ucs_event_set_handler_t event_set_handler, void* arg) {
  using namespace gradring::transport;
  static const auto kNext = reinterpret_cast<Wait>(::dlsym(RTLD_NEXT, "ucs_event_set_wait"));
  waits.fetch_add(1, std::memory_order_relaxed);
  Listener listener{event_set_handler, arg};
  return kNext(event_set, num_events, timeout_ms, &hand_one, &listener);
}
