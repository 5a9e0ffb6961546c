#include "tools/run/tagger.h"

#include <algorithm>

namespace gradring::tools {

std::string Tagger::feed(std::string_view bytes) {
  const std::string_view ends = tags() ? "\n" : ends_;
  if (ends.empty()) return std::string(bytes);
  const size_t most = kLineMax + (tags() ? 0 : kTagMax);
  std::string lines;
  while (!bytes.empty()) {
    const size_t end = bytes.find_first_of(ends);
    const size_t room = most - rest_.size();
    const size_t take = std::min(end, std::min(bytes.size(), room));
    rest_ += bytes.substr(0, take);
    const bool ended = take == end;
    if (!ended && rest_.size() < most) break;
    lines += cut();
    if (ended) {
      lines += bytes[take];
    } else if (tags()) {
      lines += '\n';
    }
    bytes.remove_prefix(take + ended);
  }
  return lines;
}

std::string Tagger::flush() { return rest_.empty() ? "" : cut() + "\n"; }

std::string Tagger::cut() {
  std::string line = (now_ != nullptr ? now_() : "") + tag_ + rest_;
  rest_.clear();
  return line;
}

}  // namespace gradring::tools
