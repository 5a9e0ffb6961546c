#pragma once

#include <string>
#include <string_view>

namespace gradring::tools {

// Cuts a stream of output into lines and puts the time and a tag in front of each. Where there is
// neither, everything passes as it came, or in whole lines if they are tagged already: those of
// several hosts would else be mixed.
class Tagger {
 public:
  using Now = std::string (*)();

  explicit Tagger(std::string tag, Now now = nullptr, bool tagged = false)
      : tag_(std::move(tag)), now_(now), tagged_(tagged) {}

  // The lines that are complete with `bytes`, tagged; an unfinished one is kept for the next call.
  // A line beyond kLineMax is cut.
  std::string feed(std::string_view bytes);
  // The unfinished line, if there is one.
  std::string flush();

  static constexpr size_t kLineMax = 64 << 10;
  static constexpr size_t kTagMax = 256;  // of a time and a tag

 private:
  std::string cut();

  std::string tag_;
  Now now_;
  bool tagged_;
  std::string rest_;
};

}  // namespace gradring::tools
