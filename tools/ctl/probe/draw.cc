#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/common/text.h"
#include "tools/ctl/probe/show.h"
#include "tools/ctl/topology/picture.h"

namespace gradring::tools {
namespace {

constexpr double kGridMargin = 32;
constexpr double kNamesWidth = 120;
constexpr double kTop = 96, kNamesHeight = 44, kBottom = 132;
constexpr double kGridWidth = 760;
constexpr double kCellWidthMin = 18, kCellWidthMax = 124;
constexpr double kCellFlat = 0.5;  // a cell's height of its width
constexpr double kCellHeightMin = 16;
constexpr double kWidthForFigures = 46;  // of a cell
constexpr double kKeyStep = 36;

// From orange to blue, which also those tell apart who do not see green or red. The middle is pale.
constexpr std::array<std::string_view, 9> kHeat = {"#b35806", "#e08214", "#fdb863",
                                                   "#fee0b6", "#f7f7f7", "#d1e5f0",
                                                   "#92c5de", "#4393c3", "#2166ac"};

std::string style_sheet() {
  std::string style;
  for (size_t i = 0; i < kHeat.size(); ++i) {
    style += fmt::format("    .heat{} {{ fill: {}; stroke: #ffffff; stroke-width: 1.5 }}\n", i,
                         kHeat[i]);
  }
  return style +
         "    .none { fill: #ffffff; stroke: #c0392b; stroke-dasharray: 3 2 }\n"
         "    .self { fill: #eef1f4; stroke: #ffffff; stroke-width: 1.5 }\n"
         "    .worst { fill: none; stroke: #c0392b; stroke-width: 3.5 }\n"
         "    .figure { font-size: 15px; font-weight: bold }\n"
         "    .light { font-size: 15px; font-weight: bold; fill: #ffffff }\n"
         "    .under { font-size: 11px }\n"
         "    .light-under { font-size: 11px; fill: #ffffff }\n";
}

// 1 for the best there is, 0 for what is a fifth of it or less.
double goodness(const ProbeMatrix& matrix, const ProbeSpread& spread, double value) {
  constexpr double kWorst = 0.2;
  const double ratio = matrix.latency ? (value > 0 ? spread.min / value : 1)
                                      : (spread.max > 0 ? value / spread.max : 1);
  return std::clamp((ratio - kWorst) / (1 - kWorst), 0.0, 1.0);
}

size_t heat_of(double goodness) {
  return static_cast<size_t>(std::lround(goodness * static_cast<double>(kHeat.size() - 1)));
}

class HeatMap {
 public:
  explicit HeatMap(const ProbeMatrix& matrix) : matrix_(matrix), spread_(spread_of(matrix)) {
    const auto nodes = static_cast<double>(std::max<size_t>(matrix.nodes.size(), 1));
    cell_width_ = std::clamp(kGridWidth / nodes, kCellWidthMin, kCellWidthMax);
    cell_height_ = std::max(cell_width_ * kCellFlat, kCellHeightMin);
    panel_height_ = kNamesHeight + nodes * cell_height_ + (matrix.lanes() > 1 ? 36 : 0);
    const auto panels = static_cast<double>(std::max<uint32_t>(matrix.lanes(), 1));
    picture_.width = std::max(2 * kGridMargin + kNamesWidth + nodes * cell_width_, 720.0);
    picture_.height = kTop + panels * panel_height_ + kBottom;
    left_ = (picture_.width - kNamesWidth - nodes * cell_width_) / 2 + kNamesWidth;
  }

  std::string draw() {
    const double middle = picture_.width / 2;
    picture_.text({middle, 40},
                  matrix_.latency ? "Latency between nodes" : "Bandwidth between nodes", "title");
    picture_.text({middle, 64}, fitted(probes_title(matrix_, "medians"), picture_.width - 48, 11),
                  "small");
    for (uint32_t lane = 0; lane < matrix_.lanes(); ++lane) panel(lane);
    if (spread_) legend();
    return svg_file(picture_, "what gradring measured between nodes", style_sheet());
  }

 private:
  void panel(uint32_t lane) {
    double top = kTop + lane * panel_height_;
    if (matrix_.lanes() > 1) {
      picture_.text({left_, top + 14}, fmt::format("lane {}", lane), "heading",
                    Picture::Anchor::kStart);
      top += 36;
    }
    picture_.text({left_ - 12, top + 24}, "from \\ to", "small", Picture::Anchor::kEnd);
    const double first = top + kNamesHeight - 10;
    const ProbeCell* worst = nullptr;
    Point worst_at;
    for (size_t i = 0; i < matrix_.nodes.size(); ++i) {
      const double x = left_ + static_cast<double>(i) * cell_width_;
      const double y = first + static_cast<double>(i) * cell_height_;
      picture_.text({x + cell_width_ / 2, top + 24}, fitted(matrix_.nodes[i], cell_width_ - 2, 13),
                    "heading");
      picture_.text({left_ - 12, y + cell_height_ / 2 + 4},
                    fitted(matrix_.nodes[i], kNamesWidth - 16, 13), "heading",
                    Picture::Anchor::kEnd);
      for (size_t j = 0; j < matrix_.nodes.size(); ++j) {
        const Point at{left_ + static_cast<double>(j) * cell_width_, y};
        const ProbeCell* one = matrix_.find(matrix_.nodes[i], matrix_.nodes[j], lane);
        cell(at, one);
        if (!spread_ || one == nullptr || one != spread_->worst) continue;
        worst = one;
        worst_at = at;
      }
    }
    if (worst != nullptr) picture_.box(worst_at, cell_width_, cell_height_, "worst", 2);
  }

  void cell(Point at, const ProbeCell* one) {
    if (one == nullptr) return picture_.box(at, cell_width_, cell_height_, "self", 0);
    if (!one->measured()) return picture_.box(at, cell_width_, cell_height_, "none", 0);
    const double value = matrix_.value(*one);
    const size_t heat = heat_of(goodness(matrix_, *spread_, value));
    picture_.box(at, cell_width_, cell_height_, fmt::format("heat{}", heat), 0);
    if (cell_width_ < kWidthForFigures) return;
    const bool dark = heat == 0 || heat + 2 >= kHeat.size();
    const auto share = one->share();
    const double x = at.x + cell_width_ / 2, y = at.y + cell_height_ / 2;
    const std::string text = matrix_.latency ? fmt::format("{:.0f}", value)
                                             : fmt::format("{:.{}f}", value, value < 10 ? 2 : 0);
    picture_.text({x, share ? y : y + 5}, text, dark ? "light" : "figure");
    if (share) {
      picture_.text({x, y + 15}, fmt::format("{:.0f} %", *share * 100),
                    dark ? "light-under" : "under");
    }
  }

  void legend() {
    const double y = picture_.height - kBottom + 28;
    const double width = kKeyStep * static_cast<double>(kHeat.size());
    const double x = (picture_.width - width) / 2;
    for (size_t i = 0; i < kHeat.size(); ++i) {
      const Point at{x + kKeyStep * static_cast<double>(i), y};
      picture_.box(at, kKeyStep, 14, fmt::format("heat{}", i), 0);
    }
    const double best = matrix_.latency ? spread_->min : spread_->max;
    picture_.text({x - 10, y + 12}, matrix_.latency ? "5 times as long" : "a fifth or less",
                  "small", Picture::Anchor::kEnd);
    picture_.text({x + width + 10, y + 12}, value_text(matrix_, best), "small",
                  Picture::Anchor::kStart);
    const ProbeCell& worst = *spread_->worst;
    const double middle = picture_.width / 2;
    picture_.text({middle, y + 46}, spread_text(matrix_, *spread_), "heading");
    picture_.text({middle, y + 68},
                  fitted(fmt::format("worst, framed: {} to {}, {}", worst.from, worst.to,
                                     value_text(matrix_, matrix_.value(worst))),
                         picture_.width - 48, 13),
                  "heading");
  }

  const ProbeMatrix& matrix_;
  const std::optional<ProbeSpread> spread_;
  double cell_width_ = 0, cell_height_ = 0, panel_height_ = 0, left_ = 0;
  Picture picture_;
};

}  // namespace

std::string draw_probes(const ProbeMatrix& matrix) { return HeatMap(matrix).draw(); }

}  // namespace gradring::tools
