// gradringctl keygen: the key pair by which daemons know one another.
#include "tools/ctl/keygen.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <string_view>

#include "tools/common/option_error.h"
#include "tools/common/text.h"
#include "tools/ctl/command.h"

namespace gradring::tools {
namespace {

namespace po = boost::program_options;

// A node that is given no name is called after its host and this port, as gradringd does by itself.
constexpr const char* kDefaultPort = ":7300";
constexpr size_t kNameMax = 127;  // as the daemon's --node
constexpr size_t kAddressMax = 260;
constexpr size_t kZ85Bytes = 41;  // 32 bytes of key as 40 characters, and a NUL

tl::unexpected<Status> refuse_keys(Code code, std::string message) {
  return tl::unexpected(Status(code, std::move(message)));
}

// Writes a file that was not there before.
Status write_new(const std::string& path, mode_t mode, const std::string& content) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  if (fd < 0 && errno == EEXIST) {
    return Status(Code::kAborted,
                  fmt::format("{} exists already and may be in use: move it away first, or choose "
                              "another --out or --name",
                              path));
  }
  if (fd < 0) {
    return Status(Code::kAborted, fmt::format("cannot make {}: {}", path, std::strerror(errno)));
  }
  const bool good =
      fchmod(fd, mode) == 0 &&  // whatever the umask says
      write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size()) &&
      fsync(fd) == 0;
  const int error = errno;
  close(fd);
  if (good) return Status();
  unlink(path.c_str());
  return Status(Code::kInternal, fmt::format("writing {}: {}", path, std::strerror(error)));
}

// A node's name becomes part of a file name and of a line, as its address does: it must be neither
// a path nor several words nor a comment, and of ASCII, as gradringd wants its node.
bool is_good_name(const std::string& name, size_t most) {
  return !name.empty() && name.size() <= most &&
         std::string_view(".-#").find(name[0]) == std::string_view::npos &&
         std::ranges::all_of(name, [](char c) { return c > ' ' && c < 0x7f && c != '/'; });
}

bool is_host_port(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (!is_good_name(address, kAddressMax) || colon == std::string::npos || colon == 0) return false;
  if (address[0] == '[' && address[colon - 1] != ']') return false;
  uint16_t port = 0;
  const char* const end = address.data() + address.size();
  const auto [rest, error] = std::from_chars(address.data() + colon + 1, end, port);
  return error == std::errc() && rest == end && port != 0;
}

// HOST:PORT that a daemon can listen at: it does not look up names of its own.
bool is_numeric(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  if (!host.starts_with('[')) return inet_pton(AF_INET, host.c_str(), bytes.data()) == 1;
  host = host.substr(1, host.rfind(']') - 1);
  return inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

std::string file_name_of(std::string node) {
  std::ranges::replace(node, ':', '-');
  return node;
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

tl::expected<KeyFiles, Status> make_keys(const std::string& directory, const std::string& node,
                                         const std::string& address) {
  if (!is_good_name(node, kNameMax)) {
    return refuse_keys(
        Code::kInvalidArgument,
        fmt::format("\"{}\" is no name for a node: use up to {} letters of ASCII, digits "
                    "and .:-_ without blanks, as in the daemon's --node",
                    printable(node), kNameMax));
  }
  if (!is_host_port(address)) {
    return refuse_keys(
        Code::kInvalidArgument,
        fmt::format("\"{}\" is no HOST:PORT; --address is where peers reach the daemon, as in "
                    "its --listen",
                    printable(address)));
  }
  std::array<char, kZ85Bytes> public_key{}, secret_key{};
  if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) {
    return refuse_keys(Code::kInternal,
                       fmt::format("libzmq cannot make CURVE keys: {}", zmq_strerror(zmq_errno())));
  }
  const std::string file = directory + "/" + file_name_of(node);
  KeyFiles files{file + ".key", file + ".pub", public_key.data()};
  Status status = write_new(files.secret_file, 0600,
                            fmt::format("# gradringd of node {}: its secret, for --key\n"
                                        "public = \"{}\"\nsecret = \"{}\"\n",
                                        node, files.public_key, secret_key.data()));
  explicit_bzero(secret_key.data(), secret_key.size());
  if (!status.ok()) return tl::unexpected(status);
  status = write_new(files.public_file, 0644,
                     fmt::format("{} {} {}\n", node, address, files.public_key));
  if (!status.ok()) {
    unlink(files.secret_file.c_str());
    return tl::unexpected(status);
  }
  return files;
}

Result run_keygen(const Context& context, const Arguments& arguments) {
  std::string directory, node, address;
  po::options_description known;
  known.add_options()("out", po::value(&directory)->default_value("."))(
      "name", po::value(&node)->default_value(host_name() + kDefaultPort))("address",
                                                                           po::value(&address));
  try {
    po::variables_map values;
    po::store(po::command_line_parser(arguments).options(known).positional({}).run(), values);
    po::notify(values);
  } catch (const po::error& error) {
    return refuse_keys(Code::kInvalidArgument, printable(words_of(error)));
  }
  if (address.empty()) address = node.find(':') == std::string::npos ? node + kDefaultPort : node;
  const auto files = make_keys(directory, node, address);
  if (!files) return tl::unexpected(files.error());
  const bool numeric = is_numeric(address);
  Answer answer;
  answer.text = fmt::format(
      "{}  the secret key: never leaves its node, only gradringd reads it\n"
      "{}  the public key: goes to every node\n"
      "\n"
      "1. On this node: gradringd --node {} --listen {} --key {} --allowed-keys FILE ...\n"
      "{}"
      "2. FILE is the same on all nodes: the .pub lines of all of them, one below the other.\n"
      "   A daemon whose key is not in it is turned away.\n",
      context.style.bad(files->secret_file), context.style.good(files->public_file), node,
      numeric ? address : "ADDRESS:PORT", files->secret_file,
      numeric
          ? ""
          : fmt::format("   ADDRESS is numeric, one of this node's. {} says {}: it must name it "
                        "as the others' --peer does.\n",
                        files->public_file, address));
  answer.json = {{"node", node},
                 {"address", address},
                 {"secret_file", files->secret_file},
                 {"public_file", files->public_file},
                 {"public_key", files->public_key}};
  return answer;
}

}  // namespace gradring::tools
