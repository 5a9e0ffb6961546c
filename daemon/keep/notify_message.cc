#include "daemon/keep/notify_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "daemon/fd_name.h"

namespace gradring::keep {
namespace {

using Lines = std::vector<std::string_view>;

Lines split(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool says(const Lines& lines, std::string_view line) {
  return std::find(lines.begin(), lines.end(), line) != lines.end();
}

// Of the first such line.
std::optional<std::string_view> value_of(const Lines& lines, std::string_view key) {
  for (const std::string_view line : lines) {
    if (line.substr(0, key.size()) == key) return line.substr(key.size());
  }
  return std::nullopt;
}

void read_extension(const Lines& lines, NotifyMessage* message) {
  const auto value = value_of(lines, "EXTEND_TIMEOUT_USEC=");
  if (!value) return;
  const bool good = !value->empty() && value->size() <= 20 &&  // of 64 bits
                    value->find_first_not_of("0123456789") == value->npos;
  if (good) {
    message->extend = *value;
  } else {
    message->complaint = "EXTEND_TIMEOUT_USEC= is no number of microseconds";
  }
}

void read_watchdog(const Lines& lines, NotifyMessage* message) {
  const auto value = value_of(lines, "WATCHDOG=");
  if (!value) return;
  if (*value == "1") {
    message->watchdog = NotifyMessage::Watchdog::kFed;
  } else if (*value == "trigger") {
    message->watchdog = NotifyMessage::Watchdog::kTriggered;
  } else {
    message->complaint = "WATCHDOG= says neither 1 nor trigger";
  }
}

void read_store(const Lines& lines, NotifyMessage* message) {
  const bool remove = says(lines, "FDSTOREREMOVE=1");
  if (!remove && !says(lines, "FDSTORE=1")) return;
  const auto name = value_of(lines, "FDNAME=");
  const bool good = name && daemon::is_fd_name(*name);
  if (remove && !good) {
    message->complaint = "FDSTOREREMOVE=1 came without the name of a descriptor";
    return;
  }
  if (name && !good) message->complaint = "FDNAME= is no name of a descriptor";
  message->store = remove ? NotifyMessage::Store::kRemove : NotifyMessage::Store::kAdd;
  message->name = good ? std::string(*name) : "stored";
  message->poll = !says(lines, "FDPOLL=0");
}

}  // namespace

tl::expected<NotifyMessage, std::string> parse_notify_message(std::string_view datagram) {
  if (datagram.size() > kNotifyBytesMax) {
    return tl::unexpected(fmt::format("it is longer than {} bytes", kNotifyBytesMax));
  }
  if (!datagram.empty() && datagram.back() == '\0') datagram.remove_suffix(1);
  if (datagram.find('\0') != datagram.npos) {
    return tl::unexpected(std::string("it has a NUL byte inside"));
  }
  const Lines lines = split(datagram);
  NotifyMessage message;
  message.barrier = says(lines, "BARRIER=1");
  if (message.barrier && lines.size() != 1) {
    return tl::unexpected(std::string("BARRIER=1 came with other fields"));
  }
  message.ready = says(lines, "READY=1");
  message.stopping = says(lines, "STOPPING=1");
  message.status = value_of(lines, "STATUS=").value_or("");
  read_extension(lines, &message);
  read_watchdog(lines, &message);
  read_store(lines, &message);
  return message;
}

}  // namespace gradring::keep
