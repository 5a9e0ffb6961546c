#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace gradring::tools::top {

// What a piece of text is, from which the screen chooses how it looks.
enum class Look { kPlain, kTitle, kHeading, kSorted, kSelected, kGood, kBad, kFaint };

struct Span {
  std::string text;
  Look look = Look::kPlain;

  bool operator==(const Span&) const = default;
};
using Line = std::vector<Span>;

// At most so many columns of a terminal of a printable text; what is cut off leaves a "…".
std::string cut(const std::string& text, size_t width);
// Likewise, of a line; its last piece is stretched by blanks to all of the width if `fill`.
Line cut(const Line& line, size_t width, bool fill = false);
// The words of a text in lines of that width, the last of which is cut where there are more than
// `most`.
std::vector<std::string> wrapped(const std::string& text, size_t width, size_t most);

// A table that takes the width that there is: columns get what they need if that suffices, else
// their least, and those of least worth go first where even that is too much.
class Grid {
 public:
  struct Column {
    std::string heading;
    size_t least = 1;
    bool right = false;
    int worth = 0;  // the least goes first
    Look look = Look::kHeading;
  };
  explicit Grid(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as there are columns, printable; `row` is how plain ones look.
  void add(std::vector<Span> cells, Look row = Look::kPlain);
  size_t rows() const { return rows_.size(); }

  // The headings, and behind them all rows, each as wide as said.
  std::vector<Line> lines(size_t width) const;

 private:
  struct Row {
    std::vector<Span> cells;
    Look look;
  };
  std::vector<size_t> widths(size_t width) const;
  Line line(const std::vector<size_t>& widths, const Row& row, size_t width) const;

  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace gradring::tools::top
