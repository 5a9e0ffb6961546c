#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradring::tools {

// Text in columns, for a terminal. Cells must be printable already.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string heading;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as there are columns.
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  // Headings and rows, two blanks between columns, no blanks at the ends of lines.
  std::string str() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace gradring::tools
