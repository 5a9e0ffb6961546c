#pragma once

#include <string>
#include <string_view>

namespace gradring::tools {

// Cuts a stream of output into lines and puts the time and a tag in front of each. Where there is
// neither, all passes on as it came, but whole up to each of `ends`, so that lines of several ranks
// or hosts are not mixed; none: at once.
class Tagger {
 public:
  using Now = std::string (*)();

  explicit Tagger(std::string tag, Now now = nullptr, std::string_view ends = "")
      : tag_(std::move(tag)), now_(now), ends_(ends) {}

  // What is complete with `bytes`; an unfinished line is kept for the next call. One beyond
  // kLineMax is passed on in parts, with a tag each.
  std::string feed(std::string_view bytes);
  // The unfinished line, if there is one, and its end.
  std::string flush();

  static constexpr size_t kLineMax = 64 << 10;
  static constexpr size_t kTagMax = 256;  // of a time and a tag

 private:
  bool tags() const { return !tag_.empty() || now_ != nullptr; }
  std::string cut();

  std::string tag_;
  Now now_;
  std::string_view ends_;
  std::string rest_;
};

}  // namespace gradring::tools
