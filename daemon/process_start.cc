#include "daemon/process_start.h"

#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "daemon/notice.h"

namespace gradring::daemon {

void block_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

void start_logging(const std::string& level) {
  spdlog::sink_ptr sink = make_journal_sink();
  if (!sink) sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>("gradringd", std::move(sink));
  // Under systemd the journal has the time already.
  logger->set_pattern(getenv("JOURNAL_STREAM") != nullptr ? "%l: %v"
                                                          : "%Y-%m-%d %H:%M:%S.%e %l: %v");
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace gradring::daemon
