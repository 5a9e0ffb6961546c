// What an operator may write: the INI file, the values in it, the two key files, and tables of
// sums. Nothing here crosses a trust boundary; a typing mistake must lead to one line and never to
// a crash.
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config.h"
#include "daemon/discovery/host_list.h"
#include "daemon/discovery/peer_source.h"
#include "daemon/keys.h"
#include "daemon/records/tuning_store.h"
#include "daemon/tuning_text.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace gradring;

// The bytes as a file that the readers can open by name.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& bytes) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    fuzz::require(
        fd_ >= 0 && write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
        "the file can be made");
    fuzz::require(fchmod(fd_, 0600) == 0, "and be made private");
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  const int fd_;
};

const std::vector<std::string>& samples() {
  static const std::vector<std::string> kSamples = {
      "node = a\nlisten = 10.0.0.1:7300\npeer = 10.0.0.2:7300\npeer = [::1]:7301\n",
      "insecure = true\n# times\nsuspect = 500ms\ndecide = 3s\nop-deadline = 30m\nrestart-grace = "
      "0\n",
      "segment-limit = 2G\nslots = 16\nslice-bytes = 256K\nsocket-mode = 0660\nlog-level = debug\n",
      "a 10.0.0.1:7300 rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\n",
      "tuning = 64K:parts,1M:128K,rest:ring\ntuning-file = /tmp/t\n",
      "64K:parts,1M:128K,rest:ring",
      "gpu[01-03,07],rack[1-2]n[0-9],login",
      "10.0.0.1:7300\nnode-b # the second\n[::1]:7301\n",
      "dns:gradring.default.svc:7300",
      R"(found { nodes { name: "a" ranks: 2 } version: "1" table: "64K:ring" searched: "64K" })",
      "%invalid_line%\nnode = %value%\n%option%=%canonical_option%\n",
      "public = \"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\"\n"
      "secret = \"JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6\"\n",
  };
  return kSamples;
}

void has_words(const std::string& text) { fuzz::require(!text.empty(), "a refusal has words"); }

void read_config(const MemoryFile& file) {
  const auto nothing = [](const std::string&) -> std::optional<std::string> {
    return std::nullopt;
  };
  const auto invocation = daemon::load_config({"--config", file.path()}, nothing);
  if (!invocation) return has_words(invocation.error());
  if (!invocation->config.key_file.empty() || !invocation->config.allowed_keys_file.empty()) return;
  const std::string fault = daemon::fault_of(invocation->config);
  if (!fault.empty()) return has_words(fault);
  fuzz::require(
      invocation->config.slots >= 2 && invocation->config.decide > invocation->config.suspect,
      "a configuration that is accepted can be run");
}

// The option and the file: what is believed can be planned by, and says the same when it is
// written.
void read_tables(const std::string& bytes) {
  const auto table = daemon::parse_tuning(bytes);
  if (!table) return has_words(table.error());
  fuzz::require(core::fault_of(*table).empty(), "a table that is accepted is sound");
  const auto again = daemon::parse_tuning(daemon::to_text(*table));
  fuzz::require(again && *again == *table, "a table is read as it is written");
}

// Where peers come from. What is believed can be dialled.
void read_sources(const std::string& bytes) {
  if (const auto source = daemon::parse_peer_source(bytes)) {
    fuzz::require(source->kind == daemon::PeerSource::Kind::kFile || source->port != 0,
                  "a source has a port");
  }
  if (const auto hosts = daemon::expand_host_list(bytes)) {
    for (const std::string& host : *hosts) fuzz::require(!host.empty(), "a host has a name");
  } else {
    has_words(hosts.error());
  }
  const auto addresses = daemon::addresses_in(bytes);
  if (!addresses) return has_words(addresses.error());
  for (const std::string& address : *addresses) {
    fuzz::require(daemon::parse_host_port(address).has_value(), "an address can be dialled");
  }
}

void read_found(const MemoryFile& file) {
  static const daemon::TunedFor kOn = {{{"a", 2, 0}}, 65536, "1"};
  const auto known = daemon::TuningStore(file.path()).find(kOn);
  fuzz::require(!known || core::fault_of(known->table).empty(), "a table that was found is sound");
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  return fuzz::mutate(samples(), data, size, size_max, seed);
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);  // a damaged file is a warning
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const MemoryFile file(bytes);
  read_config(file);
  (void)daemon::read_allowed_keys(file.path());
  (void)daemon::read_key_file(file.path());
  if (const auto address = daemon::parse_host_port(bytes)) {
    fuzz::require(!address->host.empty() && address->port != 0, "an address has both parts");
  }
  if (const auto time = daemon::parse_duration(bytes))
    fuzz::require(*time >= 0, "time is not negative");
  (void)daemon::parse_size(bytes);
  read_tables(bytes);
  read_sources(bytes);
  read_found(file);
  return 0;
}
