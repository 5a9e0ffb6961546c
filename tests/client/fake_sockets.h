#pragma once

#include <span>
#include <string>

namespace gradring::test {

// Throws, with errno in words.
void must(bool condition, const char* what);

// A listening socket of this type at `path`, in place of whatever is there.
int listen_at(const std::string& path, int type);

// Best effort: a client that is gone already is no concern of a test's.
void send_packet(int socket, const std::string& bytes, std::span<const int> descriptors = {});

}  // namespace gradring::test
