#pragma once

#include <string>

namespace gradring::tools {

std::string host_name();

// Whether a host of -H is a machine with this host name, or that without its domain; case says
// nothing.
bool is_name_of(const std::string& host, const std::string& own);

// Whether a host of -H is this one, by its name or by an address of its own. Nobody is asked what a
// name stands for.
bool is_here(const std::string& host);

// What other hosts know a host of -H by, which may be a user's on it or, as far as this one goes,
// none, "localhost" or a loopback address.
std::string name_for_others(const std::string& host);

// Whether a server can listen on this TCP port of all addresses, now.
bool port_is_free(int port);

}  // namespace gradring::tools
