#include "daemon/notice.h"

#include <spdlog/sinks/base_sink.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <syslog.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "daemon/clock.h"

namespace gradring::daemon {
namespace {

// Made by `journalctl --new-id128`, in the order of Notice. Scripts of others know them: they may
// be added to, and nothing else.
struct Known {
  const char* name;
  const char* id;
};
constexpr std::array<Known, 28> kNotices = {{
    {"ready", "ea159998b97f421624678c0190615c59"},
    {"job formed", "e6cda5443ef13b4cb80a61d2fbc698cb"},
    {"job failed", "64d358b502391703a6866f283642b46c"},
    {"peer up", "0252e2af0c757c1d971869feb4dced37"},
    {"peer lost", "e4e7590b58252d48f9008ef6ab3c9dcc"},
    {"trainer died", "7eeef6647ca35631ce2b2953f19ffb33"},
    {"draining", "483e41b467c5b9d4066592077e138ba5"},
    {"limit hit", "618ca35c463a38c9f222e03879ef2ccf"},
    {"job ended", "6792a97d9cda4af093323dcd283145c0"},
    {"view changed", "3795b255a8204a1299eb4e02ec3728ce"},
    {"peer suspected", "9b901ae049754f44985f99a4d7ba7fc0"},
    {"peer away", "2cb30c19155a495da41c0335b8a06691"},
    {"lane lost", "12c2231e758b4bcbbee361d9bdf7e2d7"},
    {"lane back", "e2e92bcc138f45a2a410e059fcc767d5"},
    {"not finite", "c7ee1a3d8c4944a1854e150b20233c04"},
    {"configuration reread", "e9884e7304ab4bcd86bc00151ac9de22"},
    {"configuration not reread", "9643ce716cf148fc831a9e7b82d65c56"},
    {"serving again", "0b9a95be93c94766bb43bd175f80dd8c"},
    {"weight set", "ffd418fe63bc4fc6bd84bd495a8e9917"},
    {"rank late", "e418975a999442c699c3fa3729a6ee47"},
    {"rank in time", "706272222f07408f8ec39bd10930ab58"},
    {"port down", "cb9a1920b7f144d0b84b66300cfce5e8"},
    {"port active", "1a290557febc4804b9397c8851c10604"},
    {"port changed", "a1ce49b5bff043ef95985980610a48a2"},
    {"gpu unusable", "f655cf7f64424580b060c9bc8b79f0b8"},
    {"gpu error", "f1f5c2565d7b4cf0b231cbbb2ad6baf3"},
    {"gpus given up", "9e2eee24c22842c4ae752b4c1706c4b1"},
    {"peer stopped", "bbcf4f93e32c4eb485f1cab59424fe70"},
}};

// Between two lines that say the same; and how many do not, in that time.
constexpr core::Time kPause = 1 * core::kSecond;
constexpr size_t kKindsMost = 16;

// Of one user at once; as many again have room among the events of the node.
constexpr core::Time kLinesAtOnce = 256;
constexpr core::Time kLineTime = 1 * core::kSecond;

// What the line that is being logged has beside its text: a sink sees the text alone.
struct Extras {
  Notice notice;
  const NoticeFields* fields;
};
thread_local std::optional<Extras> extras;

EventRing* remembered = nullptr;  // set before there is a second thread

int64_t wall_now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

// "GRADRING_JOB" is "job".
std::string field_of(std::string_view name) {
  constexpr std::string_view kPrefix = "GRADRING_";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

NodeEvent event_of(Notice notice, spdlog::level::level_enum level, const NoticeFields& fields,
                   const std::string& text) {
  const auto word = spdlog::level::to_string_view(level);
  NodeEvent event;
  event.at = monotonic_now();
  event.wall = wall_now();
  event.kind = name_of(notice);
  event.level = std::string(word.data(), word.size());
  event.text = text;
  for (const auto& [name, value] : fields) event.about.emplace_back(field_of(name), value);
  return event;
}

int priority_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::critical:
      return LOG_CRIT;
    case spdlog::level::err:
      return LOG_ERR;
    case spdlog::level::warn:
      return LOG_WARNING;
    case spdlog::level::info:
      return LOG_INFO;
    default:
      return LOG_DEBUG;
  }
}

class JournalSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::vector<std::string> entry = {
        fmt::format("PRIORITY={}", priority_of(message.level)), "SYSLOG_IDENTIFIER=gradringd",
        fmt::format("MESSAGE={}",
                    std::string_view(message.payload.data(), message.payload.size()))};
    if (extras) {
      entry.push_back(fmt::format("MESSAGE_ID={}", message_id(extras->notice)));
      for (const auto& [name, value] : *extras->fields) {
        entry.push_back(fmt::format("{}={}", name, value));
      }
    }
    std::vector<iovec> parts;
    parts.reserve(entry.size());
    for (std::string& part : entry) parts.push_back({part.data(), part.size()});
    // The journal's socket may be gone while stderr still leads there.
    if (sd_journal_sendv(parts.data(), static_cast<int>(parts.size())) < 0) {
      spdlog::memory_buf_t line;
      formatter_->format(message, line);
      (void)!::write(STDERR_FILENO, line.data(), line.size());
    }
  }
  void flush_() override {}
};

}  // namespace

const char* message_id(Notice notice) { return kNotices.at(static_cast<size_t>(notice)).id; }
const char* name_of(Notice notice) { return kNotices.at(static_cast<size_t>(notice)).name; }

void remember_in(EventRing* ring) { remembered = ring; }

void tell(Notice notice, spdlog::level::level_enum level, const NoticeFields& fields,
          const std::string& text) {
  if (remembered != nullptr) remembered->add(event_of(notice, level, fields, text));
  extras = Extras{notice, &fields};
  spdlog::log(level, "{}", text);
  extras.reset();
}

bool Seldom::lets(const std::string& text, core::Time now) {
  std::erase_if(let_, [now](const auto& entry) { return now - entry.second >= kPause; });
  std::string kind = text;
  std::erase_if(kind, [](unsigned char c) { return std::isdigit(c) != 0; });
  return let_.size() < kKindsMost && let_.try_emplace(std::move(kind), now).second;
}

LinesOfUsers::Lets LinesOfUsers::lets(uint32_t uid, core::Time now) {
  std::erase_if(users_, [now](const auto& entry) { return entry.second.until <= now; });
  User& user = users_[uid];
  user.until = std::max(user.until, now);
  if (user.until + kLineTime <= now + kLinesAtOnce * kLineTime) {
    user.until += kLineTime;
    return Lets::kYes;
  }
  return std::exchange(user.too_much, true) ? Lets::kNo : Lets::kNoMore;
}

void tell_of_job(uint32_t uid, Notice notice, spdlog::level::level_enum level,
                 const NoticeFields& fields, const std::string& text) {
  static LinesOfUsers lines;
  const LinesOfUsers::Lets lets = lines.lets(uid, monotonic_now());
  if (lets == LinesOfUsers::Lets::kYes) return tell(notice, level, fields, text);
  if (lets == LinesOfUsers::Lets::kNo) return;
  tell(Notice::kLimitHit, spdlog::level::warn, {},
       fmt::format("there is too much to tell of the jobs of uid {}: from now on a line a second, "
                   "until there is less",
                   uid));
}

bool tell_limit(const Status& refusal) {
  static Seldom seldom;
  if (refusal.code() != Code::kResourceExhausted) return false;
  if (!seldom.lets(refusal.message(), monotonic_now())) return false;
  tell(Notice::kLimitHit, spdlog::level::warn, {}, "refused: " + refusal.message());
  return true;
}

// systemd says in JOURNAL_STREAM which file its end of the journal is; whoever redirects stderr
// inherits the variable and not the file.
spdlog::sink_ptr make_journal_sink() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat state {};
  if (stream == nullptr || fstat(STDERR_FILENO, &state) != 0) return nullptr;
  if (fmt::format("{}:{}", state.st_dev, state.st_ino) != stream) return nullptr;
  return std::make_shared<JournalSink>();
}

}  // namespace gradring::daemon
