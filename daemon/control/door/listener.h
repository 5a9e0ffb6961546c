#pragma once

#include <string>
#include <tl/expected.hpp>

#include "daemon/fd.h"
#include "daemon/fd_store.h"
#include "proto/status.h"

namespace gradring::daemon {

// A listening AF_UNIX socket at `path`, of SOCK_SEQPACKET or SOCK_STREAM: the one that the last
// gradringd left in the store, with whoever has connected since; else a new one, which is kept
// there under the name of the file. The caller holds the lock of the directory.
tl::expected<Fd, Status> open_listener(const std::string& path, int type, FdStore* store);

// For good: whoever comes now is told at once that nobody is here.
void remove_listener(const std::string& path, FdStore* store);

}  // namespace gradring::daemon
