#include "transport/machine/verbs_library.h"

#include <dlfcn.h>

#include <cstring>
#include <optional>

namespace gradring::machine {
namespace {

constexpr const char* kVerbs = "libibverbs.so.1";

template <typename Function>
bool find_verb(void* library, const char* symbol, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, symbol));
  return *function != nullptr;
}

std::optional<VerbsLibrary> load_verbs() {
  void* const library = dlopen(kVerbs, RTLD_NOW | RTLD_LOCAL);
  VerbsLibrary verbs;
  const bool all = library != nullptr &&
                   find_verb(library, "ibv_get_device_list", &verbs.get_device_list) &&
                   find_verb(library, "ibv_free_device_list", &verbs.free_device_list) &&
                   find_verb(library, "ibv_get_device_name", &verbs.get_device_name) &&
                   find_verb(library, "ibv_open_device", &verbs.open_device) &&
                   find_verb(library, "ibv_close_device", &verbs.close_device) &&
                   find_verb(library, "ibv_query_device", &verbs.query_device) &&
                   find_verb(library, "ibv_query_port", &verbs.query_port_compat) &&
                   find_verb(library, "_ibv_query_gid_table", &verbs.query_gid_table) &&
                   find_verb(library, "ibv_get_async_event", &verbs.get_async_event) &&
                   find_verb(library, "ibv_ack_async_event", &verbs.ack_async_event);
  return all ? std::optional(verbs) : std::nullopt;
}

}  // namespace

// What ibv_query_port() of the header is: the driver's own, where it has one.
int VerbsLibrary::query_port(ibv_context* context, uint8_t number, ibv_port_attr* port) const {
  const verbs_context* const driver = verbs_get_ctx_op(context, query_port);
  if (driver != nullptr) return driver->query_port(context, number, port, sizeof *port);
  std::memset(port, 0, sizeof *port);
  return query_port_compat(context, number, reinterpret_cast<_compat_ibv_port_attr*>(port));
}

const VerbsLibrary* verbs_library() {
  static const std::optional<VerbsLibrary> kLibrary = load_verbs();
  return kLibrary ? &*kLibrary : nullptr;
}

}  // namespace gradring::machine
