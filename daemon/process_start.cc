#include "daemon/process_start.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <google/protobuf/stubs/common.h>
#include <signal.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <iterator>
#include <memory>
#include <utility>

#if GOOGLE_PROTOBUF_VERSION < 4022000  // later ones log through Abseil
#include <google/protobuf/stubs/logging.h>
#endif

#include "daemon/notice.h"

namespace gradring::daemon {
namespace {

// What is said, of names that trainers and peers have chosen: none of them makes a line of its own,
// or talks to a terminal.
class OnOneLine final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/,
              spdlog::memory_buf_t& to) override {
    for (size_t i = 0; i < message.payload.size(); ++i) {
      const auto at = [&](size_t k) {
        return k < message.payload.size() ? static_cast<unsigned char>(message.payload[k]) : 0;
      };
      const unsigned char c = at(i);
      const bool c1 = c == 0xc2 && at(i + 1) >= 0x80 && at(i + 1) < 0xa0;  // as UTF-8 has them
      if (c1) {
        fmt::format_to(std::back_inserter(to), "\\u{{{:x}}}", at(++i));  // as gradringctl has it
      } else if (c < 0x20 || c == 0x7f) {
        fmt::format_to(std::back_inserter(to), "\\x{:02x}", c);
      } else {
        to.push_back(message.payload[i]);
      }
    }
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<OnOneLine>();
  }
};

// Of each message whose names are not UTF-8 protobuf says so on stderr, and whoever reaches a
// socket can send 400,000 a second. Its sender is told that it is malformed.
void hush_protobuf() {
#if GOOGLE_PROTOBUF_VERSION < 4022000
  google::protobuf::SetLogHandler(nullptr);
#endif
}

}  // namespace

void fill_standard_descriptors() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);
  if (fd >= 0) ::close(fd);
}

void block_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

void start_logging(const std::string& level) {
  hush_protobuf();
  spdlog::sink_ptr sink = make_journal_sink();
  if (!sink) sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>("gradringd", std::move(sink));
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  // Under systemd the journal has the time already.
  formatter->add_flag<OnOneLine>('*').set_pattern(
      getenv("JOURNAL_STREAM") != nullptr ? "%l: %*" : "%Y-%m-%d %H:%M:%S.%e %l: %*");
  logger->set_formatter(std::move(formatter));
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace gradring::daemon
