#pragma once

namespace gradring::transport {

// UCX prints to stdout by itself. From the first call on its lines go where the process's own go
// (spdlog's default logger). Its "error" is our warning: it says so when a peer is not there.
void take_over_ucx_log();

}  // namespace gradring::transport
