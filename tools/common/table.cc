#include "tools/common/table.h"

#include <algorithm>

#include "tools/common/text.h"

namespace gradring::tools {

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::str() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = width_of(columns_[c].heading);
    for (const auto& row : rows_) width = std::max(width, width_of(row[c]));
    widths.push_back(width);
  }
  std::string text;
  const auto add_cell = [&](size_t c, const std::string& cell) {
    const std::string padding(widths[c] - width_of(cell), ' ');
    text += columns_[c].align == Align::kRight ? padding + cell : cell + padding;
  };
  const auto end_line = [&] {
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  };
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (c > 0) text += "  ";
    add_cell(c, columns_[c].heading);
  }
  end_line();
  for (const auto& row : rows_) {
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) text += "  ";
      add_cell(c, row[c]);
    }
    end_line();
  }
  return text;
}

}  // namespace gradring::tools
