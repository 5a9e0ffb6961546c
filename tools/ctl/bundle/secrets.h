#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradring::tools {

// The text without what nobody else may read: every one of the known secrets, every word that looks
// like a key (40 characters of ZeroMQ's Z85, rfc.zeromq.org/spec/32, which are 32 bytes), and the
// value of every line NAME = VALUE whose name speaks of a secret. Rather too much than too little:
// a path of just 40 characters goes as well.
std::string without_secrets(std::string_view text, const std::vector<std::string>& known);

// What of a key file is secret: its words, but for the short ones.
std::vector<std::string> secrets_of(std::string_view key_file);

}  // namespace gradring::tools
