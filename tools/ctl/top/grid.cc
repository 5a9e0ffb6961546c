#include "tools/ctl/top/grid.h"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "tools/common/text.h"

namespace gradring::tools::top {
std::string cut(const std::string& text, size_t width) {
  if (width_of(text) <= width) return text;
  return width == 0 ? "" : std::string(beginning_of(text, width - 1)) + "…";
}

Line cut(const Line& line, size_t width, bool fill) {
  Line short_enough;
  size_t left = width;
  for (const Span& span : line) {
    if (left == 0) break;
    short_enough.push_back({cut(span.text, left), span.look});
    left -= width_of(short_enough.back().text);
  }
  if (fill && left > 0 && !short_enough.empty()) {
    short_enough.back().text += std::string(left, ' ');
  }
  return short_enough;
}

std::vector<std::string> wrapped(const std::string& text, size_t width, size_t most) {
  std::vector<std::string> lines;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool fits = !lines.empty() && width_of(lines.back()) + 1 + width_of(word) <= width;
    if (fits || lines.size() == most) {
      if (lines.empty()) break;
      lines.back() += " " + word;
    } else {
      lines.push_back(word);
    }
  }
  for (std::string& line : lines) line = cut(line, width);
  return lines;
}

void Grid::add(std::vector<Span> cells, Look row) { rows_.push_back({std::move(cells), row}); }

// 0: left out.
std::vector<size_t> Grid::widths(size_t width) const {
  std::vector<size_t> order(columns_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [this](size_t column) { return columns_[column].worth; });
  std::vector<size_t> widths(columns_.size(), 0);
  size_t left = width + 1;  // each has a blank behind it, the last one beyond the edge
  for (const size_t column : order) {
    const size_t least = columns_[column].least;
    if (left < least + 1) break;
    widths[column] = least;
    left -= least + 1;
  }
  for (const size_t column : order) {
    if (widths[column] == 0) continue;
    size_t wanted = width_of(columns_[column].heading);
    for (const Row& row : rows_) wanted = std::max(wanted, width_of(row.cells[column].text));
    const size_t more = std::min(left, wanted - std::min(wanted, widths[column]));
    widths[column] += more;
    left -= more;
  }
  return widths;
}

Line Grid::line(const std::vector<size_t>& widths, const Row& row, size_t width) const {
  Line line;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (widths[i] == 0) continue;
    if (!line.empty()) line.push_back({" ", row.look});
    std::string text = cut(row.cells[i].text, widths[i]);
    const std::string blanks(widths[i] - width_of(text), ' ');
    const Look look = row.cells[i].look == Look::kPlain ? row.look : row.cells[i].look;
    line.push_back({columns_[i].right ? blanks + text : text + blanks, look});
  }
  if (!line.empty()) line.push_back({"", row.look});
  return cut(line, width, true);
}

std::vector<Line> Grid::lines(size_t width) const {
  const std::vector<size_t> all = widths(width);
  Row headings{{}, Look::kHeading};
  for (const Column& column : columns_) headings.cells.push_back({column.heading, column.look});
  std::vector<Line> lines = {line(all, headings, width)};
  for (const Row& row : rows_) lines.push_back(line(all, row, width));
  return lines;
}

}  // namespace gradring::tools::top
