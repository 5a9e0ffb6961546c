// gradringctl support-bundle: what whoever is to help will ask for, in one file.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/program_options.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <utility>

#include "tools/common/option_error.h"
#include "tools/common/output.h"
#include "tools/common/size.h"
#include "tools/common/table.h"
#include "tools/common/text.h"
#include "tools/ctl/bundle/parts.h"
#include "tools/ctl/bundle/program.h"
#include "tools/ctl/bundle/secrets.h"
#include "tools/ctl/command.h"

namespace gradring::tools {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

constexpr std::chrono::seconds kTarPatience{120};
constexpr const char* kManifest = "MANIFEST.txt";

// Whoever interrupts it finds neither the name taken nor the parts left behind.
volatile sig_atomic_t interrupted = 0;
void interrupt(int) { interrupted = 1; }

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = interrupt;
  for (const int signal : {SIGINT, SIGQUIT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
  // Who reads its progress may go, as a head that has its lines: the file is what is wanted. Caught
  // and not ignored, so that the programs that it starts have the usual end of such a pipe.
  action.sa_handler = [](int) {};
  sigaction(SIGPIPE, &action, nullptr);
}

struct Had {
  std::string path;
  std::string what;
  uint64_t bytes = 0;
  std::string fault;  // why it could not be had
};

std::string default_name() {
  char host[256] = "node";
  (void)gethostname(host, sizeof host - 1);
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  char stamp[32] = "";
  if (gmtime_r(&now, &utc) != nullptr) {
    (void)std::strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc);
  }
  return fmt::format("gradring-{}-{}.tar.gz", host, stamp);
}

tl::expected<std::string, Status> parse_support_bundle(const Arguments& arguments) {
  const auto refuse = [](std::string why) {
    return tl::unexpected(Status(Code::kInvalidArgument, std::move(why)));
  };
  std::string file = default_name();
  po::options_description known;
  known.add_options()("output,o", po::value(&file));
  try {
    po::variables_map values;
    po::store(po::command_line_parser(arguments).options(known).positional({}).run(), values);
    po::notify(values);
  } catch (const po::error& error) {
    return refuse(printable(words_of(error)));
  }
  if (!file.ends_with(".tar.gz") && !file.ends_with(".tgz")) {
    return refuse(fmt::format("-o takes a name that ends in .tar.gz, not {}", printable(file)));
  }
  return file;
}

// Holds the name, so that nothing is overwritten, until the archive is whole.
class NewFile {
 public:
  static tl::expected<NewFile, Status> make(const std::string& path) {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
      close(fd);
      return NewFile(path);
    }
    return tl::unexpected(
        Status(Code::kAborted,
               errno == EEXIST
                   ? fmt::format("{} exists already: choose another -o", printable(path))
                   : fmt::format("cannot make {}: {}", printable(path), std::strerror(errno))));
  }
  NewFile(NewFile&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  ~NewFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  void keep() { path_.clear(); }

 private:
  explicit NewFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Where the parts are until they are packed.
class Scratch {
 public:
  Scratch() {
    std::error_code ignored;
    std::string name = (fs::temp_directory_path(ignored) / "gradring-bundle-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Empty, or what went wrong.
std::string write(const fs::path& path, const std::string& content) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  file.close();
  return file ? "" : fmt::format("cannot write {}: {}", path.string(), std::strerror(errno));
}

Had take(const BundlePart& part, const fs::path& root, const std::vector<std::string>& secrets) {
  Had had{part.path, part.what, 0, ""};
  const auto content = part.read();
  if (!content) {
    had.fault = without_secrets(content.error(), secrets);
    return had;
  }
  const std::string text = part.binary ? *content : without_secrets(*content, secrets);
  had.bytes = text.size();
  had.fault = write(root / part.path, text);
  return had;
}

// `topology --replay` shows it again.
Had take_machine(const Context& context, const fs::path& root) {
  Had had{"here/machine", "the recording of this machine", 0, ""};
  const Result answer = run_topology(context, {"--record", (root / had.path).string()});
  if (!answer) had.fault = answer.error().message();
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(root / had.path, error)) {
    if (entry.is_regular_file()) had.bytes += entry.file_size();
  }
  return had;
}

std::string manifest_of(const std::vector<Had>& all) {
  Table table({{"file"}, {"bytes", Table::Align::kRight}, {"what"}});
  std::string missing;
  for (const Had& had : all) {
    if (had.fault.empty()) {
      table.add({had.path, std::to_string(had.bytes), had.what});
    } else {
      missing += fmt::format("{} ({}): {}\n", had.path, had.what, printable(had.fault));
    }
  }
  return fmt::format(
      "What gradringctl support-bundle found. Keys, and what looks like one, are taken "
      "out.\n\n{}{}",
      table.str(), missing.empty() ? "" : "\nWhat could not be had, and why\n\n" + missing);
}

Answer show(const std::string& file, const std::vector<Had>& all, const Status& daemon) {
  Answer answer;
  auto parts = nlohmann::ordered_json::array();
  size_t missing = 0;
  for (const Had& had : all) {
    parts.push_back({{"file", had.path},
                     {"what", had.what},
                     {"bytes", had.bytes},
                     {"missing_because", had.fault}});
    missing += had.fault.empty() ? 0 : 1;
  }
  std::error_code error;
  const uint64_t bytes = fs::file_size(file, error);
  answer.text = fmt::format(
      "{}: {} of {}, {}; look into it before you send it: {} says what is in it\n", printable(file),
      all.size() - missing, counted(all.size(), "part"), format_bytes(bytes), kManifest);
  answer.json = {{"file", file}, {"bytes", bytes}, {"parts", parts}};
  if (!daemon.ok()) {
    answer.problems.push_back("no daemon could be asked: " + printable(daemon.message()));
  }
  return answer;
}

}  // namespace

Result run_support_bundle(const Context& context, const Arguments& arguments) {
  const auto file = parse_support_bundle(arguments);
  if (!file) return tl::unexpected(file.error());
  catch_signals();
  auto made = NewFile::make(*file);
  if (!made) return tl::unexpected(made.error());
  const Scratch scratch;
  if (scratch.path().empty()) {
    return tl::unexpected(Status(
        Code::kInternal, fmt::format("cannot make a temporary folder: {}", std::strerror(errno))));
  }
  const std::string name = "gradring-support";
  const fs::path root = scratch.path() / name;
  const BundlePlan plan = plan_bundle(context);
  std::vector<Had> all;
  const auto tell = [&all] {
    const Had& had = all.back();
    put_err(fmt::format(
        "{}: {}\n", had.what,
        had.fault.empty() ? format_bytes(had.bytes) : "not to be had: " + printable(had.fault)));
  };
  for (const BundlePart& part : plan.parts) {
    if (interrupted != 0) {
      return tl::unexpected(Status(Code::kAborted, "it was interrupted, and has written nothing"));
    }
    all.push_back(take(part, root, plan.secrets));
    tell();
  }
  all.push_back(take_machine(context, root));
  tell();
  if (std::string fault = write(root / kManifest, manifest_of(all)); !fault.empty()) {
    return tl::unexpected(Status(Code::kInternal, fault));
  }
  const auto packed =
      output_of({"tar", "--create", "--gzip", "--owner=0", "--group=0", "--file",
                 fs::absolute(*file).string(), "--directory", scratch.path().string(), name},
                kTarPatience);
  if (!packed) return tl::unexpected(Status(Code::kInternal, packed.error()));
  made->keep();
  return show(*file, all, plan.daemon);
}

}  // namespace gradring::tools
