#pragma once

#include <infiniband/verbs.h>

namespace gradring::machine {

// The functions of libibverbs that are used, by their own names. It is not linked: whoever has no
// RDMA need not have it.
struct VerbsLibrary {
  decltype(&ibv_get_device_list) get_device_list = nullptr;
  decltype(&ibv_free_device_list) free_device_list = nullptr;
  decltype(&ibv_get_device_name) get_device_name = nullptr;
  decltype(&ibv_open_device) open_device = nullptr;
  decltype(&ibv_close_device) close_device = nullptr;
  decltype(&ibv_query_device) query_device = nullptr;
  int (*query_port_compat)(ibv_context*, uint8_t, _compat_ibv_port_attr*) = nullptr;
  decltype(&_ibv_query_gid_table) query_gid_table = nullptr;
  decltype(&ibv_get_async_event) get_async_event = nullptr;
  decltype(&ibv_ack_async_event) ack_async_event = nullptr;

  int query_port(ibv_context* context, uint8_t number, ibv_port_attr* port) const;
};

// Loads it, once, and keeps it; nullptr where it is not installed. Any thread.
const VerbsLibrary* verbs_library();

}  // namespace gradring::machine
