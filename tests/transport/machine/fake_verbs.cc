// A libibverbs.so.1 with one device, "fake0", of two ports, and a test at its other end: the
// functions fake_verbs_...() make happen what the kernel would tell.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>

namespace {

struct Event {
  int type;
  int port;
};

std::mutex mutex;
ibv_device device;
ibv_context context;
int ends[2] = {-1, -1};  // of a pipe; [0] is the context's
bool present = true;
ibv_port_state states[3] = {IBV_PORT_DOWN, IBV_PORT_ACTIVE, IBV_PORT_ACTIVE};
int unread = 0;
int unacknowledged = 0;

void close_end(int which) {
  if (ends[which] >= 0) close(ends[which]);
  ends[which] = -1;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are the library's.
#undef ibv_query_port
extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  const std::lock_guard<std::mutex> lock(mutex);
  auto** list = new ibv_device* [2] { &device, nullptr };
  *count = present ? 1 : 0;
  return list;
}
void ibv_free_device_list(ibv_device** list) { delete[] list; }
const char* ibv_get_device_name(ibv_device*) { return "fake0"; }
ibv_context* ibv_open_device(ibv_device*) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!present || ends[0] >= 0 || pipe2(ends, O_CLOEXEC) != 0) return nullptr;
  std::memset(&context, 0, sizeof context);
  context.device = &device;
  context.async_fd = ends[0];
  return &context;
}
int ibv_close_device(ibv_context*) {
  const std::lock_guard<std::mutex> lock(mutex);
  close_end(0);
  close_end(1);
  unread = 0;
  return 0;
}
int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
  attributes->phys_port_cnt = 2;
  return 0;
}
int ibv_query_port(ibv_context*, uint8_t port, _compat_ibv_port_attr* to) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!present || port > 2) return EIO;
  reinterpret_cast<ibv_port_attr*>(to)->state = states[port];
  return 0;
}
ssize_t _ibv_query_gid_table(ibv_context*, ibv_gid_entry*, size_t, uint32_t, size_t) { return 0; }
int ibv_get_async_event(ibv_context* of, ibv_async_event* event) {
  Event told{};
  const ssize_t bytes = read(of->async_fd, &told, sizeof told);
  if (bytes != sizeof told) {
    if (bytes >= 0) errno = EIO;
    return -1;
  }
  event->event_type = static_cast<ibv_event_type>(told.type);
  event->element.port_num = told.port;
  const std::lock_guard<std::mutex> lock(mutex);
  --unread;
  ++unacknowledged;
  return 0;
}
void ibv_ack_async_event(ibv_async_event*) {
  const std::lock_guard<std::mutex> lock(mutex);
  --unacknowledged;
}

// ---- for the test ----

void fake_verbs_tell(int type, int port) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (type == IBV_EVENT_PORT_ERR) states[port] = IBV_PORT_DOWN;
  if (type == IBV_EVENT_PORT_ACTIVE) states[port] = IBV_PORT_ACTIVE;
  const Event event{type, port};
  if (ends[1] >= 0 && write(ends[1], &event, sizeof event) == sizeof event) ++unread;
}
// As when its driver is unloaded.
void fake_verbs_take_away() {
  const std::lock_guard<std::mutex> lock(mutex);
  present = false;
  close_end(1);
}
void fake_verbs_bring_back() {
  const std::lock_guard<std::mutex> lock(mutex);
  present = true;
}
int fake_verbs_unacknowledged() {
  const std::lock_guard<std::mutex> lock(mutex);
  return unread + unacknowledged;
}
}
// NOLINTEND(readability-identifier-naming)
