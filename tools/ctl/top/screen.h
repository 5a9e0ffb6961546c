#pragma once

#include <memory>
#include <optional>
#include <tl/expected.hpp>
#include <vector>

#include "proto/status.h"
#include "tools/ctl/top/frame.h"

namespace gradring::tools::top {

// The terminal, as long as this lives; afterwards it is as it was. One at a time, one thread.
class Screen {
 public:
  // INVALID_ARGUMENT where there is no terminal, or one that is not known, with what to do instead.
  static tl::expected<std::unique_ptr<Screen>, Status> open(bool colour);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  Size size() const;
  void paint(const std::vector<Line>& frame);
  // What was pressed within a tenth of a second, if something was. `resized`: the terminal has
  // another size.
  std::optional<Key> wait(bool* resized);

  // Whether somebody has asked for the end by SIGINT, SIGTERM or SIGHUP.
  static bool interrupted();

 private:
  Screen(void* terminal, bool colour);

  void* const terminal_;  // ncurses' own
  bool colour_;
};

}  // namespace gradring::tools::top
