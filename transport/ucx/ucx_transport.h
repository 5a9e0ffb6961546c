#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "transport/port_range.h"
#include "transport/transport.h"
#include "transport/ucx/rdma_options.h"

namespace gradring::transport {

struct UcxOptions {
  // Network devices by the names UCX has for them: "eth0", "mlx5_0:1" (or "mlx5_0" when it has one
  // port). None: the interface that carries listen_address is taken.
  std::vector<std::string> devices;
  // Numeric IP address, without a port, that the daemon is reached at. A loopback address takes
  // "lo"; empty, "*", "0.0.0.0" or "::" take every interface that is up, save lo, bridges and
  // containers'.
  std::string listen_address;
  // Payloads of this many bytes or more go by rendezvous. Unset: never over TCP, and by UCX's own
  // choice over RDMA. The conformance suite sets it to walk RDMA's path on machines that have only
  // TCP.
  std::optional<size_t> rendezvous_bytes;
  RdmaOptions rdma = {};  // of the devices that are RDMA's
  // They are to send what lies on GPUs as well (make_ready_on_gpu): UCX loads what it has for CUDA.
  bool gpus = false;
  PortRange ports = {};  // of TCP
  // Interfaces will do as well that UCX cannot use and the kernel's sockets can: one without a
  // carrier, and one of whose addresses each has a label ("eth0:1"). Of choose_ucx_devices().
  bool by_sockets = false;
};

// UCX active messages between worker addresses; the reasons are in GOTCHAS.md. May be made on one
// thread and handed to another before its first use; from then on it is that thread's alone.
//
// What this body adds to the interface:
// - One connection is one direction. disconnect() is not told to the peer: tell it by other means.
// - Payloads up to preferred_payload_bytes() and headers come in the order they were sent; a larger
//   payload, or one by rendezvous, may be overtaken.
// - Sends to one peer that are under way are bounded (kSendsMax); more are kResourceExhausted.
//
// Refused, with the devices that do exist: unknown or down devices, an address that no interface
// carries.
tl::expected<std::unique_ptr<Transport>, Status> make_ucx_transport(const UcxOptions& options);

// The devices that it would use, and why these.
struct UcxDevices {
  std::vector<std::string> names;
  std::string reason;
  bool rdma = false;  // any of them
};
tl::expected<UcxDevices, Status> choose_ucx_devices(const UcxOptions& options);

// Whether UCX can work on this machine, in words: the version and the devices, or what is missing.
struct UcxViability {
  bool works = false;
  std::string why;
};
UcxViability ucx_viability();

// "1.13.1", of the library that was loaded.
std::string ucx_version();

}  // namespace gradring::transport
