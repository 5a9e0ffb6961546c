#include "transport/ucx/log.h"

#include <spdlog/spdlog.h>
#include <ucs/debug/log_def.h>

#include <cstdarg>
#include <cstdio>
#include <mutex>

namespace gradring::transport {
namespace {

constexpr size_t kLineBytesMax = 1024;  // what UCX itself cuts its lines at

spdlog::level::level_enum level_of(ucs_log_level_t level) {
  switch (level) {
    case UCS_LOG_LEVEL_FATAL:
      return spdlog::level::critical;
    case UCS_LOG_LEVEL_ERROR:
    case UCS_LOG_LEVEL_WARN:
      return spdlog::level::warn;
    case UCS_LOG_LEVEL_DIAG:
    case UCS_LOG_LEVEL_INFO:
      return spdlog::level::info;
    default:
      return spdlog::level::debug;
  }
}

// May be called by UCX's own thread, too; spdlog's default logger allows it.
ucs_log_func_rc_t hand_on(const char* /*file*/, unsigned /*line*/, const char* /*function*/,
                          ucs_log_level_t level, const ucs_log_component_config_t* component,
                          const char* format, va_list arguments) {
  if (level > component->log_level) return UCS_LOG_FUNC_RC_STOP;
  char line[kLineBytesMax];
  std::vsnprintf(line, sizeof line, format, arguments);
  spdlog::log(level_of(level), "UCX: {}", line);
  return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

void take_over_ucx_log() {
  static std::once_flag taken;
  std::call_once(taken, [] { ucs_log_push_handler(hand_on); });
}

}  // namespace gradring::transport
