#include "tools/ctl/topology/picture.h"

#include <fmt/format.h>

#include "tools/common/text.h"

namespace gradring::tools {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// Colours have one meaning each: green computes, blue is network, violet is NVLink, orange is what
// gradring chose; whiter and greyer is what merely holds others.
constexpr std::string_view kStyle = R"(  <style>
    text { fill: #1f2933; font-size: 12px }
    .title { font-size: 20px; font-weight: bold }
    .heading { font-size: 13px; font-weight: bold }
    .small { font-size: 11px; fill: #52606d }
    .nvlink-text { font-size: 11px; fill: #6a3fa0; font-weight: bold }
    .machine { fill: #ffffff; stroke: #9aa5b1; stroke-width: 1.5 }
    .socket { fill: #f5f7fa; stroke: #b8c2cc; stroke-width: 1.5 }
    .cpu { fill: #e4e7eb; stroke: #9aa5b1 }
    .root { fill: #eef2f6; stroke: #b8c2cc; stroke-dasharray: 4 3 }
    .switch { fill: #fff8e6; stroke: #d9b95c }
    .root-label { fill: #eef2f6 }
    .switch-label { fill: #fff8e6 }
    .gpu { fill: #dff3e4; stroke: #2d7d46; stroke-width: 1.5 }
    .nic { fill: #dcebfa; stroke: #2f6fad; stroke-width: 1.5 }
    .idle { fill: #f0f2f4; stroke: #9aa5b1 }
    .down { fill: #fbe9e7; stroke: #c0392b; stroke-width: 1.5; stroke-dasharray: 3 2 }
    .nvswitch { fill: #ece2f7; stroke: #6a3fa0; stroke-width: 1.5 }
    .nvlink { stroke: #6a3fa0; stroke-width: 3; fill: none }
    .affinity { stroke: #e07b00; stroke-width: 3; fill: none }
    .system { stroke: #7b8794; stroke-width: 5; fill: none }
    .node { fill: #e4f4e8; stroke: #2d7d46; stroke-width: 1.5 }
    .away { fill: #fbe9e7; stroke: #c0392b; stroke-width: 1.5 }
    .circle { stroke: #b8c2cc; stroke-width: 2; fill: none; stroke-dasharray: 6 5 }
    .lane0 { stroke: #2f6fad; stroke-width: 3; fill: none; marker-end: url(#head0) }
    .lane1 { stroke: #e07b00; stroke-width: 3; fill: none; marker-end: url(#head1) }
    .lane2 { stroke: #2d7d46; stroke-width: 3; fill: none; marker-end: url(#head2) }
    .lane3 { stroke: #6a3fa0; stroke-width: 3; fill: none; marker-end: url(#head3) }
    .key0 { stroke: #2f6fad; stroke-width: 3 }
    .key1 { stroke: #e07b00; stroke-width: 3 }
    .key2 { stroke: #2d7d46; stroke-width: 3 }
    .key3 { stroke: #6a3fa0; stroke-width: 3 }
  </style>
)";

std::string arrow_heads() {
  std::string text = "  <defs>\n";
  int i = 0;
  for (const char* colour : {"#2f6fad", "#e07b00", "#2d7d46", "#6a3fa0"}) {
    text += fmt::format(
        "    <marker id=\"head{}\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"11\" "
        "markerHeight=\"11\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">"
        "<path d=\"M0 0L10 5L0 10z\" fill=\"{}\"/></marker>\n",
        i++, colour);
  }
  return text + "  </defs>\n";
}

}  // namespace

void Picture::box(Point at, double w, double h, std::string_view kind, double radius) {
  body_ += fmt::format(
      "  <rect class=\"{}\" x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" rx=\"{:g}\"/>\n",
      kind, at.x, at.y, w, h, radius);
}

void Picture::text(Point at, std::string_view words, std::string_view kind, Anchor anchor) {
  constexpr std::string_view kAnchors[] = {"start", "middle", "end"};
  body_ += fmt::format("  <text class=\"{}\" x=\"{:g}\" y=\"{:g}\" text-anchor=\"{}\">{}</text>\n",
                       kind, at.x, at.y, kAnchors[static_cast<int>(anchor)], escaped(words));
}

void Picture::line(const std::vector<Point>& points, std::string_view kind) {
  std::string d;
  for (const Point& point : points) {
    d += fmt::format("{}{:g} {:g}", d.empty() ? "M" : "L", point.x, point.y);
  }
  path(d, kind);
}

void Picture::path(const std::string& d, std::string_view kind) {
  body_ += fmt::format("  <path class=\"{}\" d=\"{}\"/>\n", kind, d);
}

void Picture::place(Point at, const Picture& other) {
  body_ +=
      fmt::format("  <g transform=\"translate({:g} {:g})\">\n{}  </g>\n", at.x, at.y, other.body_);
}

std::string fitted(std::string_view text, double width, double font) {
  // Letters of Helvetica and its kin are about half as wide as they are high; capitals are wider.
  constexpr double kLetter = 0.56;
  std::string clean = printable(text);
  const auto room = static_cast<size_t>(width / (font * kLetter));
  if (width_of(clean) <= room) return clean;
  std::string cut;
  for (size_t i = 0; i < clean.size() && width_of(cut) + 2 < room;) {
    size_t next = i + 1;
    while (next < clean.size() && (clean[next] & 0xc0) == 0x80) ++next;  // the rest of a character
    cut += clean.substr(i, next - i);
    i = next;
  }
  return cut + "\u2026";
}

std::string svg_file(const Picture& picture, std::string_view title, std::string_view style) {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" "
             "width=\"{0:g}\" "
             "height=\"{1:g}\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n"
             "  <title>{2}</title>\n",
             picture.width, picture.height, escaped(title)) +
         std::string(kStyle) +
         (style.empty() ? "" : fmt::format("  <style>\n{}  </style>\n", style)) + arrow_heads() +
         fmt::format("  <rect width=\"{:g}\" height=\"{:g}\" fill=\"#ffffff\"/>\n", picture.width,
                     picture.height) +
         picture.body() + "</svg>\n";
}

}  // namespace gradring::tools
