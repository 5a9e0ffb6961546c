#include "tools/run/tagger.h"

#include <algorithm>

namespace gradring::tools {

std::string Tagger::feed(std::string_view bytes) {
  if (tag_.empty() && now_ == nullptr && !tagged_) return std::string(bytes);
  const size_t most = kLineMax + (tagged_ ? kTagMax : 0);
  std::string lines;
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    const size_t room = most - rest_.size();
    const size_t take = std::min(newline, std::min(bytes.size(), room));
    rest_ += bytes.substr(0, take);
    const bool ended = take == newline;
    bytes.remove_prefix(take + ended);
    if (!ended && rest_.size() < most) break;
    lines += cut();
  }
  return lines;
}

std::string Tagger::flush() { return rest_.empty() ? "" : cut(); }

std::string Tagger::cut() {
  std::string line = (now_ != nullptr ? now_() : "") + tag_ + rest_ + "\n";
  rest_.clear();
  return line;
}

}  // namespace gradring::tools
