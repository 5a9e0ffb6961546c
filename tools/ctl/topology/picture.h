#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradring::tools {

struct Point {
  double x = 0;
  double y = 0;
};

// A drawing in SVG that grows by calls; what is drawn later lies on top. Sizes are in pixels, y
// grows downwards. Classes are those of style_sheet(). Texts may be anything.
class Picture {
 public:
  enum class Anchor { kStart, kMiddle, kEnd };

  void box(Point at, double width, double height, std::string_view kind, double radius = 6);
  void text(Point at, std::string_view words, std::string_view kind,
            Anchor anchor = Anchor::kMiddle);
  // Straight pieces from point to point.
  void line(const std::vector<Point>& points, std::string_view kind);
  // With an arrow at its end, if `kind` has one.
  void path(const std::string& d, std::string_view kind);
  // Another picture, with its upper left corner there.
  void place(Point at, const Picture& other);

  double width = 0;
  double height = 0;
  const std::string& body() const { return body_; }

 private:
  std::string body_;
};

// As many characters of it as fit into so many pixels of a font of that size, and an ellipsis.
std::string fitted(std::string_view text, double width, double font);

// The whole file. `style`: of classes of its own, in CSS.
std::string svg_file(const Picture& picture, std::string_view title, std::string_view style = {});

}  // namespace gradring::tools
