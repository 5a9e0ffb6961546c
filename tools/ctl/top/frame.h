#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/ctl/top/grid.h"
#include "tools/ctl/top/model.h"
#include "tools/ctl/top/view.h"

namespace gradring::tools::top {

// Of the screen, in characters.
struct Size {
  size_t width = 80;
  size_t height = 24;
};

// What the screen shows: as many lines as it is high, none wider than it is. Pure.
std::vector<Line> frame_of(const Model& model, const View& view, const Size& size);

// Its text alone, without blanks at the ends of lines and empty lines at the end.
std::string text_of(const std::vector<Line>& frame);

// The parts of the frame, each with its headings first.
Grid jobs_grid(const Model& model, const View& view, size_t width);
Grid links_grid(const Model& model, const View& view);
Grid ranks_grid(const Job& job);

}  // namespace gradring::tools::top
