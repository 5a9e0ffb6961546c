#include "tools/ctl/bundle/parts.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include "proto/flight.h"
#include "proto/version.h"
#include "tools/common/text.h"
#include "tools/ctl/bundle/program.h"
#include "tools/ctl/bundle/secrets.h"

namespace gradring::tools {
namespace {

using Content = tl::expected<std::string, std::string>;

constexpr const char* kDefaultConfigFile = "/etc/gradring/gradringd.conf";  // as gradringd has it
constexpr std::chrono::seconds kJournalPatience{20};
constexpr size_t kFileMost = 64 << 20;

Content read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return tl::unexpected(fmt::format("{}: {}", path, std::strerror(errno)));
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) return tl::unexpected(fmt::format("{}: {}", path, std::strerror(errno)));
  if (text.size() > kFileMost) text.resize(kFileMost);
  return text;
}

BundlePart file_part(const std::string& path, const std::string& what, const std::string& from,
                     bool binary = false) {
  return {path, what, [from] { return read_file(from); }, binary};
}

// Several small files as one, each under its name.
Content read_files(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) {
    const Content one = read_file(path);
    text += fmt::format("==> {} <==\n{}\n", path, one ? *one : "(" + one.error() + ")");
  }
  return text;
}

Content answer_of(Result (*run)(const Context&, const Arguments&), const Context& context,
                  const Arguments& arguments) {
  const Result answer = run(context, arguments);
  if (!answer) return tl::unexpected(answer.error().message());
  return document_of(*answer).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// A name from outside becomes part of a path.
std::string as_file_name(const std::string& name) {
  std::string safe = name;
  for (char& c : safe) {
    const bool good = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
    if (!good && c != '.') c = '_';
  }
  if (safe.empty() || safe[0] == '.') safe.insert(0, "_");
  return safe.substr(0, 100);
}

void add_node(const Context& here, const std::string& node, bool local,
              std::vector<BundlePart>* parts) {
  Context context = here;
  context.style = {};
  context.node = local ? "" : node;
  using Run = Result (*)(const Context&, const Arguments&);
  // `apart`: what keeps those of one name apart, however long it is.
  const auto add = [&](const std::string& name, Run run, const Arguments& arguments,
                       const std::string& apart = "") {
    parts->push_back(
        {fmt::format("nodes/{}/{}{}.json", as_file_name(node), as_file_name(name), apart),
         fmt::format("{}{} of node {}", printable(name), apart, printable(node)),
         [=] { return answer_of(run, context, arguments); }});
  };
  add("status", run_status, {});
  add("peers", run_peers, {});
  add("jobs", run_jobs, {});
  add("events", run_events, {});
  wire::Query query;
  query.set_what(wire::Query::JOBS);
  const Reply reply = ask(context, query);
  if (!reply) return;
  for (const wire::JobSummary& job : reply->jobs().jobs()) {
    if (job.incarnation().empty()) continue;  // it forms still: jobs tells all
    add("job-" + job.name(), run_job, {job.incarnation()}, "-" + job.incarnation().substr(0, 8));
  }
}

std::vector<std::string> command_line_of(int64_t pid) {
  std::vector<std::string> words;
  const Content text = read_file(fmt::format("/proc/{}/cmdline", pid));
  std::istringstream stream(text.value_or(""));
  for (std::string word; std::getline(stream, word, '\0');) words.push_back(word);
  return words;
}

Content libraries_of(int64_t pid) {
  Content maps = read_file(fmt::format("/proc/{}/maps", pid));
  if (!maps) return maps;
  std::set<std::string> libraries;
  std::istringstream lines(*maps);
  for (std::string line; std::getline(lines, line);) {
    const size_t path = line.find('/');
    if (path != std::string::npos && line.find(".so") != std::string::npos) {
      libraries.insert(line.substr(path));
    }
  }
  if (libraries.empty()) return tl::unexpected(std::string("this user may not see them"));
  std::string text;
  for (const std::string& library : libraries) text += library + "\n";
  return text;
}

Content kernel() {
  utsname name{};
  if (uname(&name) != 0) return tl::unexpected(std::string(std::strerror(errno)));
  return fmt::format("{} {} {} {}\n", name.sysname, name.release, name.version, name.machine);
}

Content journal() {
  Content text = output_of({"journalctl", "--unit=gradringd", "--no-pager", "--quiet",
                            "--output=short-iso", "--lines=5000"},
                           kJournalPatience);
  if (text && text->empty()) {
    return tl::unexpected(
        std::string("the journal has nothing of a unit gradringd that this user may read"));
  }
  return text;
}

void add_daemon(int64_t pid, BundlePlan* plan) {
  auto& parts = plan->parts;
  const std::string proc = fmt::format("/proc/{}/", pid);
  const std::string named = config_file_of(command_line_of(pid));
  const std::string config = as_seen_by(pid, named);
  const Content text = read_file(config);
  const std::string key = text ? key_file_in(*text) : "";
  if (!key.empty()) plan->secrets = secrets_of(read_file(as_seen_by(pid, key)).value_or(""));
  parts.push_back(file_part("here/gradringd.conf", "the configuration " + named, config));
  parts.push_back(file_part("here/limits.txt", "the daemon's limits", proc + "limits"));
  parts.push_back(file_part("here/process.txt", "the daemon's process", proc + "status"));
  parts.push_back(
      {"here/libraries.txt", "the daemon's libraries", [pid] { return libraries_of(pid); }});
}

void add_machine(const Context& context, std::vector<BundlePart>* parts) {
  parts->push_back({"here/kernel.txt", "the kernel", kernel});
  parts->push_back(file_part("here/os-release.txt", "the distribution", "/etc/os-release"));
  const std::vector<std::string> tuning = {"/proc/cmdline",
                                           "/proc/meminfo",
                                           "/proc/loadavg",
                                           "/proc/net/dev",
                                           "/proc/sys/net/core/rmem_max",
                                           "/proc/sys/net/core/wmem_max",
                                           "/proc/sys/net/ipv4/tcp_rmem",
                                           "/proc/sys/net/ipv4/tcp_wmem",
                                           "/proc/sys/net/ipv4/tcp_congestion_control",
                                           "/sys/kernel/mm/transparent_hugepage/enabled"};
  parts->push_back({"here/system.txt", "memory, network and their settings",
                    [=] { return read_files(tuning); }});
  parts->push_back({"here/journal.txt", "the journal of unit gradringd", journal});
  for (const char* name : {kFlightFile, kFlightFileBefore}) {
    parts->push_back(file_part(fmt::format("here/{}", name), fmt::format("the file {}", name),
                               context.runtime_dir + "/" + name, true));
  }
  parts->push_back({"here/versions.txt", "versions",
                    [] { return Content(fmt::format("gradringctl {}\n", kProductVersion)); }});
}

}  // namespace

std::string config_file_of(const std::vector<std::string>& command_line) {
  constexpr std::string_view kFlag = "--config";
  for (size_t i = 0; i < command_line.size(); ++i) {
    const std::string& word = command_line[i];
    if (word == kFlag && i + 1 < command_line.size()) return command_line[i + 1];
    if (word.starts_with(kFlag) && word.size() > kFlag.size() && word[kFlag.size()] == '=') {
      return word.substr(kFlag.size() + 1);
    }
  }
  return kDefaultConfigFile;
}

std::string as_seen_by(int64_t pid, const std::string& path) {
  return std::filesystem::path(fmt::format("/proc/{}/cwd", pid)) / path;
}

std::string key_file_in(const std::string& config) {
  std::istringstream lines(config);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    std::istringstream left(line.substr(0, equals)), right(line.substr(equals + 1));
    std::string name, more, value;
    if (left >> name && name == "key" && !(left >> more) && right >> value) return value;
  }
  return "";
}

BundlePlan plan_bundle(const Context& context) {
  BundlePlan plan;
  auto questions = Questions::open(context.runtime_dir);
  std::vector<std::string> missing;
  const auto nodes =
      questions ? all_nodes(*questions, &missing)
                : tl::expected<std::vector<std::string>, Status>(tl::unexpected(questions.error()));
  if (nodes) {
    for (const std::string& node : *nodes) {
      add_node(context, node, node == nodes->front(), &plan.parts);
    }
    for (const std::string& why : missing) {
      plan.parts.push_back(
          {"nodes", "what another node knows", [why]() -> Content { return tl::unexpected(why); }});
    }
    plan.parts.push_back({"topology.json", "topology of all nodes",
                          [context] { return answer_of(run_topology, context, {"--all"}); }});
    wire::Query query;
    query.set_what(wire::Query::STATUS);
    const Reply status = questions->ask(query);
    if (status) add_daemon(status->status().pid(), &plan);
  } else {
    plan.daemon = nodes.error();
  }
  add_machine(context, &plan.parts);
  return plan;
}

}  // namespace gradring::tools
