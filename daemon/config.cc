#include "daemon/config.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>
#include <thread>

#include "daemon/config_options.h"
#include "proto/byte_order_mark.h"
#include "proto/version.h"

namespace gradring::daemon {
namespace {

namespace po = boost::program_options;

// What one source (command line, environment, file) says, by option.
using Said = std::map<std::string, std::vector<std::string>>;

std::string environment_name(const std::string& option) {
  std::string name = "GRADRING_" + option;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::toupper(c));
  });
  return name;
}

po::options_description describe_options(bool for_file) {
  po::options_description settings("Settings (flag, key of the file, or environment variable)",
                                   100);
  for (const Option& option : all_options()) {
    auto* value = po::value<std::vector<std::string>>()->composing();
    const bool is_switch = option.argument.empty();
    if (is_switch) value->implicit_value({}, "true");
    value->value_name(is_switch ? "BOOL" : option.argument);
    std::string help = option.help;
    if (option.reread)
      help.insert(std::min(help.find("; default: "), help.size()), "; reread on SIGHUP");
    if (!option.fallback.empty()) help += " [" + option.fallback + "]";
    settings.add_options()(option.name.c_str(), value, help.c_str());
  }
  if (for_file) return settings;
  po::options_description all("", 100);
  po::options_description commands("Command line only", 100);
  commands.add_options()(
      "config", po::value<std::vector<std::string>>()->value_name("FILE"),
      fmt::format("INI file with KEY = VALUE lines [{}, if it exists]", kDefaultConfigFile)
          .c_str())("check-config", "check everything, print OK and exit")(
      "keep",
      "run gradringd as a child, restart it when it dies, and keep its descriptors meanwhile, as "
      "systemd would; SIGUSR1 restarts it at once")("help", "print this and exit")(
      "version", "print the version and exit");
  all.add(commands).add(settings);
  return all;
}

std::string help_text() {
  std::ostringstream out;
  out << "usage: gradringd [SETTING]...\n\n"
         "The gradient daemon of one node. Trainers attach to it by the sockets in runtime-dir, "
         "other\n"
         "nodes' daemons by listen and peer.\n"
      << describe_options(false)
      << "\nPrecedence: flag, then environment (GRADRING_ and the name in upper case with "
         "underscores,\n"
         "lists separated by commas), then file, then the default in brackets. Times are written "
         "500ms,\n"
         "300s, 5m; sizes 4096, 256K, 64M, 2G.\n\n"
         "Signals: SIGTERM and SIGINT drain (a second one stops at once), SIGHUP rereads "
         "log-level, limits\n"
         "and allowed-keys; SIGUSR1, which systemctl restart sends, stops at once where a "
         "restart-grace\n"
         "lets jobs go on in the next daemon, and drains elsewhere. Exit status: 0 after a drain, "
         "2 when the configuration is wrong, 1 "
         "else.\n\n"
         "UCX catches SIGSEGV and its kin unless UCX_HANDLE_ERRORS=none is set, as the systemd "
         "unit does.\n";
  return out.str();
}

Said gather(const po::parsed_options& parsed) {
  Said said;
  for (const auto& option : parsed.options) {
    auto& values = said[option.string_key];
    values.insert(values.end(), option.value.begin(), option.value.end());
    if (option.value.empty())
      values.emplace_back("true");  // a switch; the parser wants values of others
  }
  return said;
}

tl::expected<Said, std::string> read_arguments(const std::vector<std::string>& arguments) {
  try {
    const auto style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    Said said = gather(
        po::command_line_parser(arguments).options(describe_options(false)).style(style).run());
    if (const auto stray = said.find(""); stray != said.end()) {
      return tl::unexpected(fmt::format(
          "unexpected argument '{}'; gradringd --help lists the flags", stray->second.front()));
    }
    return said;
  } catch (const po::unknown_option& error) {
    return tl::unexpected(fmt::format("unknown flag '{}'; gradringd --help lists the flags",
                                      error.get_option_name()));
  } catch (const po::error& error) {
    return tl::unexpected(std::string(error.what()) + "; see gradringd --help");
  }
}

Said read_environment(const Environment& environment) {
  Said said;
  for (const Option& option : all_options()) {
    const auto value = environment(environment_name(option.name));
    if (!value) continue;
    if (!option.repeatable) {
      said[option.name] = {*value};
      continue;
    }
    std::istringstream items(*value);
    for (std::string item; std::getline(items, item, ',');) {
      item.erase(0, item.find_first_not_of(' '));  // as people write lists
      item.erase(item.find_last_not_of(' ') + 1);
      said[option.name].push_back(item);
    }
  }
  return said;
}

// As other programs' files have them: node = "a" is a.
tl::expected<Said, std::string> without_quotes(Said said, const std::string& path) {
  const auto is_quote = [](char c) { return c == '"' || c == '\''; };
  for (auto& [option, values] : said) {
    for (std::string& value : values) {
      if (value.empty() || (!is_quote(value.front()) && !is_quote(value.back()))) continue;
      if (value.size() < 2 || value.front() != value.back()) {
        return tl::unexpected(fmt::format(
            "{}: {}: '{}' is not good: it has a quote at one end alone", path, option, value));
      }
      value = value.substr(1, value.size() - 2);
    }
  }
  return said;
}

tl::expected<Said, std::string> read_file(const std::string& path) {
  std::ifstream file(path);
  std::string bytes;
  // By read(): what a disk or a folder refuses looks like an empty file to whoever takes rdbuf().
  std::array<char, 4096> part{};
  while (file.read(part.data(), part.size()) || file.gcount() > 0) {
    bytes.append(part.data(), static_cast<size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    return tl::unexpected(
        fmt::format("cannot read the configuration file {}: {}", path, std::strerror(errno)));
  }
  // Of UTF-16, or of a file that was not whole on the disk when the power went.
  if (const size_t nul = bytes.find('\0'); nul != std::string::npos) {
    return tl::unexpected(
        fmt::format("{} is not text: its byte {} is 0; write it anew, as UTF-8", path, nul + 1));
  }
  std::istringstream text{std::string(without_byte_order_mark(bytes))};
  try {
    return without_quotes(gather(po::parse_config_file(text, describe_options(true))), path);
  } catch (const po::unknown_option& error) {
    return tl::unexpected(fmt::format("{}: unknown key '{}'; gradringd --help lists the keys", path,
                                      error.get_option_name()));
  } catch (const po::invalid_config_file_syntax& error) {
    // Not what(): Boost 1.74 replaces %invalid_line% in its sentence for as long as it finds it.
    return tl::unexpected(fmt::format("{}: '{}' is not KEY = VALUE", path, error.tokens()));
  } catch (const po::error& error) {
    return tl::unexpected(fmt::format("{}: {}", path, error.what()));
  }
}

std::string too_often(const std::string& source, const std::vector<std::string>& values) {
  return fmt::format("{} is given {} times; give it once", source, values.size());
}

std::string apply(const Option& option, const std::vector<std::string>& values,
                  const std::string& source, Config& config) {
  if (!option.repeatable && values.size() > 1) return too_often(source, values);
  for (const std::string& value : values) {
    const std::string wrong = option.set(config, value);
    if (!wrong.empty()) return fmt::format("{}: '{}' is not good: {}", source, value, wrong);
  }
  config.words[option.name] = values;
  return "";
}

uint64_t a_few_of_the_processors() {
  const unsigned processors = std::thread::hardware_concurrency();
  return processors < 2 ? 0 : std::max(1u, processors / 8);
}

uint64_t half_of_memory() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / 2;
}

void derive_defaults(Config& config) {
  if (config.segment_limit == 0) config.segment_limit = half_of_memory();
  if (!config.reduce_threads) config.reduce_threads = a_few_of_the_processors();
  if (config.node.empty()) {
    char host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    config.node = std::string(host) +
                  config.listen.substr(std::min(config.listen.rfind(':'), config.listen.size()));
  }
}

}  // namespace

std::vector<std::string> wait_for_restart(const Config& running, const Config& read) {
  const auto words_of = [](const Config& config, const std::string& option) {
    const auto found = config.words.find(option);
    return found == config.words.end() ? std::vector<std::string>{} : found->second;
  };
  std::vector<std::string> waiting;
  for (const Option& option : all_options()) {
    if (option.reread) continue;
    if (words_of(running, option.name) != words_of(read, option.name))
      waiting.push_back(option.name);
  }
  return waiting;
}

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

tl::expected<Invocation, std::string> load_config(const std::vector<std::string>& arguments,
                                                  const Environment& environment,
                                                  const std::string& default_file) {
  const auto flags = read_arguments(arguments);
  if (!flags) return tl::unexpected(flags.error());
  Invocation invocation;
  if (flags->count("help") > 0) return Invocation{Invocation::What::kHelp, help_text(), {}};
  if (flags->count("version") > 0) {
    return Invocation{
        Invocation::What::kVersion, fmt::format("gradringd {}\n", kProductVersion), {}};
  }
  if (flags->count("keep") > 0) invocation.what = Invocation::What::kKeep;
  if (flags->count("check-config") > 0) invocation.what = Invocation::What::kCheckConfig;

  const Said variables = read_environment(environment);
  Said keys;
  std::string file = default_file;
  const auto named = flags->find("config");
  if (named != flags->end()) {
    if (named->second.size() > 1) return tl::unexpected(too_often("--config", named->second));
    file = named->second.front();
  }
  // One that is there and cannot be reached is not passed over: it may say who may come in.
  const bool there = access(file.c_str(), F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
  if (named != flags->end() || there) {
    auto read = read_file(file);
    if (!read) return tl::unexpected(read.error());
    keys = std::move(*read);
  }

  for (const Option& option : all_options()) {
    std::string wrong;
    if (const auto flag = flags->find(option.name); flag != flags->end()) {
      wrong = apply(option, flag->second, "--" + option.name, invocation.config);
    } else if (const auto variable = variables.find(option.name); variable != variables.end()) {
      wrong = apply(option, variable->second, environment_name(option.name), invocation.config);
    } else if (const auto key = keys.find(option.name); key != keys.end()) {
      wrong = apply(option, key->second, file + ": " + option.name, invocation.config);
    } else if (!option.fallback.empty()) {
      wrong = apply(option, {option.fallback}, option.name, invocation.config);
    }
    if (!wrong.empty()) return tl::unexpected(wrong);
  }
  derive_defaults(invocation.config);
  return invocation;
}

}  // namespace gradring::daemon
