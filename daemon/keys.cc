#include "daemon/keys.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <zmq.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "daemon/config.h"
#include "proto/byte_order_mark.h"

namespace gradring::daemon {
namespace {

constexpr size_t kKeyCharacters = 40;  // Z85 of 32 bytes

bool is_key(const std::string& text) {
  std::array<uint8_t, 32> bytes{};
  return text.size() == kKeyCharacters && zmq_z85_decode(bytes.data(), text.c_str()) != nullptr;
}

bool blank_or_comment(const std::string& line) {
  const size_t first = line.find_first_not_of(" \t\r");
  return first == std::string::npos || line[first] == '#';
}

// `name = "key"`: the key, or empty.
std::string quoted_value(const std::string& line, const std::string& name) {
  std::istringstream words(line);
  std::string first, equals, value;
  words >> first >> equals >> value;
  if (first != name || equals != "=" || value.size() < 2) return "";
  if (value.front() != '"' || value.back() != '"') return "";
  return value.substr(1, value.size() - 2);
}

// From 254 on systemd hands a service's user its credentials by an ACL, whose mask stands where the
// mode has the group's bits: 0440, though no group may read them. Nobody but systemd makes folders
// in /run/credentials, where --check-config looks from a shell.
mode_t bits_of_others(const std::string& path) {
  std::error_code unknown;
  const char* folder = std::getenv("CREDENTIALS_DIRECTORY");
  const auto itself = std::filesystem::canonical(path, unknown);
  const bool handed_over =
      itself.parent_path().parent_path() == "/run/credentials" ||
      (folder != nullptr && std::filesystem::equivalent(itself.parent_path(), folder, unknown));
  return handed_over ? 07 : 077;
}

}  // namespace

tl::expected<KeyPair, std::string> read_key_file(const std::string& path) {
  const auto wrong = [&path](const std::string& what) {
    return tl::unexpected(fmt::format("key file {}: {}", path, what));
  };
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    const char* advice = path.starts_with("/run/credentials/")
                             ? "systemd puts it there from /etc/credstore while the service runs"
                             : "make one with: gradringctl keygen";
    return wrong(fmt::format("{}; {}", std::strerror(errno), advice));
  }
  if ((status.st_mode & bits_of_others(path)) != 0) {
    return wrong(fmt::format("mode {:04o} lets others read it; run: chmod 600 {}",
                             status.st_mode & 07777, path));
  }
  std::ifstream file(path);
  if (!file) return wrong("cannot be read by this user");
  KeyPair keys;
  for (std::string line; std::getline(file, line);) {
    if (blank_or_comment(line)) continue;
    if (std::string key = quoted_value(line, "public"); is_key(key)) {
      keys.public_key = key;
    } else if (key = quoted_value(line, "secret"); is_key(key)) {
      keys.secret_key = key;
    } else {
      return wrong(
          "expected the lines: public = \"KEY\" and secret = \"KEY\", keys of 40 characters");
    }
  }
  if (keys.public_key.empty() || keys.secret_key.empty()) {
    return wrong(
        "the public or the secret key is missing; make a new pair with: gradringctl keygen");
  }
  std::array<char, kKeyCharacters + 1> derived{};
  if (zmq_curve_public(derived.data(), keys.secret_key.c_str()) != 0) {
    return wrong("this ZeroMQ library has no CURVE; install one that was built with libsodium");
  }
  if (keys.public_key != derived.data())
    return wrong("the public key does not belong to the secret one");
  return keys;
}

tl::expected<std::vector<AllowedKey>, std::string> read_allowed_keys(const std::string& path) {
  std::ifstream file(path);
  file.peek();  // a folder can be opened
  const auto unreadable = [&path] {
    return tl::unexpected(
        fmt::format("allowed-keys file {} cannot be read: {}", path, std::strerror(errno)));
  };
  if (!file.is_open() || file.bad()) return unreadable();
  std::vector<AllowedKey> keys;
  size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    if (++number == 1) line = without_byte_order_mark(line);
    if (blank_or_comment(line)) continue;
    const auto wrong = [&](const std::string& what) {
      return tl::unexpected(fmt::format("{} line {}: {}", path, number, what));
    };
    std::istringstream words(line);
    AllowedKey key;
    std::string more;
    words >> key.node >> key.address >> key.public_key;
    if (words.fail() || words >> more) return wrong("expected NODE HOST:PORT KEY");
    if (!parse_host_port(key.address))
      return wrong(fmt::format("'{}' is not HOST:PORT", key.address));
    if (!is_key(key.public_key)) return wrong("the public key is not 40 characters of Z85");
    for (const AllowedKey& other : keys) {
      if (other.node == key.node) return wrong(fmt::format("node {} is listed twice", key.node));
      if (other.public_key == key.public_key) {
        return wrong(fmt::format("nodes {} and {} have the same key", other.node, key.node));
      }
    }
    keys.push_back(std::move(key));
  }
  if (file.bad()) return unreadable();  // whom the rest of it names would be shut out
  return keys;
}

}  // namespace gradring::daemon
