#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tools/common/text.h"
#include "tools/ctl/topology/draw.h"
#include "tools/ctl/topology/names.h"

namespace gradring::tools {
namespace {

constexpr double kNodeWidth = 136, kNodeHeight = 52;
constexpr double kLaneGap = 11;  // between the arrows of two lanes
constexpr size_t kLanesMax = 4;  // that have a colour of their own
constexpr double kWideMin = 210, kHighMin = 130;
constexpr double kFlat = 0.58;  // boxes are wide, and so are slides

struct Seat {
  std::string name;
  std::string under;
  bool well = true;
};

// An ellipse of nodes, clockwise from the top.
class Ellipse {
 public:
  Ellipse(std::vector<Seat> seats, const std::string& title, const std::vector<std::string>& under,
          const std::vector<std::string>& lanes = {})
      : seats_(std::move(seats)) {
    for (size_t i = 0; i < lanes.size(); ++i) {
      legend_.push_back(fmt::format("lane {}: {}", i, lanes[i]));
      legend_width_ += item_width(legend_.back());
    }
    const double around = static_cast<double>(seats_.size()) * (kNodeWidth + 50);
    wide_ = std::max(kWideMin, around / (2 * std::numbers::pi) * 1.1);
    high_ = std::max(kHighMin, wide_ * kFlat);
    picture_.width = std::max({2 * wide_ + kNodeWidth + 80, 640.0, legend_width_ + 48});
    const double top = 62 + 18.0 * static_cast<double>(under.size());
    picture_.height = top + 2 * high_ + kNodeHeight + 70;
    middle_ = {picture_.width / 2, top + high_ + kNodeHeight / 2};
    picture_.text({middle_.x, 36}, fitted(title, picture_.width - 48, 21), "title");
    double y = 60;
    for (const std::string& line : under) {
      picture_.text({middle_.x, y}, fitted(line, picture_.width - 48, 11), "small");
      y += 18;
    }
  }

  void plain() {
    picture_.path(fmt::format("M{0:g} {1:g}a{2:g} {3:g} 0 1 1 0 {4:g}a{2:g} {3:g} 0 1 1 0 {5:g}",
                              middle_.x, middle_.y - high_, wide_, high_, 2 * high_, -2 * high_),
                  "circle");
  }

  // From each node to the next, for each lane.
  void arrows(size_t lanes) {
    for (size_t lane = 0; lane < lanes; ++lane) {
      const double shift =
          kLaneGap * (static_cast<double>(lanes - 1) / 2 - static_cast<double>(lane));
      for (size_t i = 0; i < seats_.size(); ++i) arrow(i, shift, lane);
    }
  }

  void nodes() {
    for (size_t i = 0; i < seats_.size(); ++i) {
      const Point at = at_angle(angle_of(i), 0);
      picture_.box({at.x - kNodeWidth / 2, at.y - kNodeHeight / 2}, kNodeWidth, kNodeHeight,
                   seats_[i].well ? "node" : "away");
      picture_.text({at.x, at.y - 4}, fitted(seats_[i].name, kNodeWidth - 8, 13), "heading");
      picture_.text({at.x, at.y + 15}, fitted(seats_[i].under, kNodeWidth - 8, 11), "small");
    }
  }

  void legend() {
    const double y = picture_.height - 24;
    double x = middle_.x - legend_width_ / 2;
    for (size_t i = 0; i < legend_.size(); ++i) {
      picture_.line({{x, y - 4}, {x + 22, y - 4}}, fmt::format("key{}", i % kLanesMax));
      picture_.text({x + 29, y}, legend_[i], "small", Picture::Anchor::kStart);
      x += item_width(legend_[i]);
    }
  }

  Picture take() { return std::move(picture_); }

 private:
  static double item_width(const std::string& text) {
    return 29 + 6.2 * static_cast<double>(width_of(text)) + 18;
  }
  double angle_of(size_t seat) const {
    return 2 * std::numbers::pi * static_cast<double>(seat) / static_cast<double>(seats_.size());
  }
  // On the ellipse, or so far outside.
  Point at_angle(double angle, double outside) const {
    return {middle_.x + (wide_ + outside) * std::sin(angle),
            middle_.y - (high_ + outside) * std::cos(angle)};
  }
  bool covers(size_t seat, Point point, double margin) const {
    const Point at = at_angle(angle_of(seat), 0);
    return std::abs(point.x - at.x) < kNodeWidth / 2 + margin &&
           std::abs(point.y - at.y) < kNodeHeight / 2 + margin;
  }

  // Along the ellipse from where it leaves one box to where it meets the next.
  void arrow(size_t seat, double outside, size_t lane) {
    constexpr double kStep = 0.002, kClear = 5;
    constexpr int kPieces = 24;
    const size_t next = (seat + 1) % seats_.size();
    double from = angle_of(seat);
    double to = from + 2 * std::numbers::pi / static_cast<double>(seats_.size());
    while (from < to && covers(seat, at_angle(from, outside), kClear)) from += kStep;
    while (from < to && covers(next, at_angle(to, outside), kClear)) to -= kStep;
    if (from >= to) return;
    std::string d;
    for (int i = 0; i <= kPieces; ++i) {
      const Point point = at_angle(from + (to - from) * i / kPieces, outside);
      d += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", point.x, point.y);
    }
    picture_.path(d, fmt::format("lane{}", lane % kLanesMax));
  }

  std::vector<Seat> seats_;
  std::vector<std::string> legend_;
  double legend_width_ = 0;
  Picture picture_;
  Point middle_;
  double wide_ = 0;
  double high_ = 0;
};

}  // namespace

Picture draw_ring(const wire::RingReport& ring, const std::vector<std::string>& lanes) {
  std::vector<Seat> seats;
  size_t ranks = 0;
  for (const auto& member : ring.members()) {
    const std::vector<uint32_t> numbers(member.ranks().begin(), member.ranks().end());
    ranks += numbers.size();
    seats.push_back(
        {member.node(), (numbers.size() == 1 ? "rank " : "ranks ") + ranges_of(numbers)});
  }
  const size_t nodes = seats.size();
  Ellipse ellipse(std::move(seats), fmt::format("ring of job {}", ring.job()),
                  {fmt::format("{}, {}, {}, epoch {}; {}", counted(nodes, "node"),
                               counted(ranks, "rank"), counted(lanes.size(), "lane"), ring.epoch(),
                               nodes == 1 ? "one node: nothing travels"
                                          : "each node sends to the next, clockwise"),
                   ring.reason()},
                  lanes);
  if (nodes > 1) ellipse.arrows(std::max<size_t>(lanes.size(), 1));
  ellipse.nodes();
  ellipse.legend();
  return ellipse.take();
}

Picture draw_nodes(const wire::TopologyReport& report) {
  std::vector<Seat> seats = {{report.node(), "this node"}};
  for (const auto& peer : report.peers()) {
    seats.push_back(
        {peer.node().empty() ? peer.address() : peer.node(), peer.state(), peer.state() == "up"});
  }
  std::ranges::sort(seats, in_order, &Seat::name);
  Ellipse ellipse(std::move(seats), "nodes",
                  {"no job is running; a ring has the order of its nodes' lowest ranks"});
  ellipse.plain();
  ellipse.nodes();
  return ellipse.take();
}

}  // namespace gradring::tools
