#include "tools/ctl/topology/nvlinks.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace gradring::tools {
namespace {

constexpr double kBar = 30, kBracket = 22;

struct Pair {
  int from = 0;
  int to = 0;
  uint32_t count = 0;
};

std::vector<Pair> pairs_of(const wire::MachineReport& machine) {
  std::vector<Pair> pairs;
  for (int gpu = 0; gpu < machine.gpus_size(); ++gpu) {
    for (const auto& link : machine.gpus(gpu).nvlinks()) {
      if (link.gpu() > gpu) pairs.push_back({gpu, link.gpu(), link.count()});
    }
  }
  return pairs;
}

std::map<int, uint32_t> switched(const wire::MachineReport& machine) {
  std::map<int, uint32_t> counts;
  for (int gpu = 0; gpu < machine.gpus_size(); ++gpu) {
    for (const auto& link : machine.gpus(gpu).nvlinks()) {
      if (link.gpu() < 0) counts[gpu] = link.count();
    }
  }
  return counts;
}

// The height of each bracket: those that lie over one another are on different levels.
std::vector<int> levels_of(const std::vector<Pair>& pairs) {
  std::vector<int> levels;
  for (size_t i = 0; i < pairs.size(); ++i) {
    int level = 0;
    const auto taken = [&] {
      for (size_t j = 0; j < i; ++j) {
        if (levels[j] == level && pairs[j].from <= pairs[i].to && pairs[i].from <= pairs[j].to)
          return true;
      }
      return false;
    };
    while (taken()) ++level;
    levels.push_back(level);
  }
  return levels;
}

int level_count(const std::vector<int>& levels) {
  return levels.empty() ? 0 : 1 + *std::max_element(levels.begin(), levels.end());
}

}  // namespace

double nvlink_height(const wire::MachineReport& machine) {
  const double bar = switched(machine).empty() ? 0 : kBar + 26;
  return bar + kBracket * level_count(levels_of(pairs_of(machine)));
}

void draw_nvlinks(const wire::MachineReport& machine, const std::map<int, Box>& gpus, double floor,
                  Picture* picture) {
  const std::vector<Pair> pairs = pairs_of(machine);
  const std::vector<int> levels = levels_of(pairs);
  const auto links = switched(machine);
  std::map<int, int> ends, used;
  for (const Pair& pair : pairs) ++ends[pair.from], ++ends[pair.to];
  for (const auto& [gpu, count] : links) ++ends[gpu];
  const auto attach = [&](int gpu) -> Point {
    const Box& box = gpus.at(gpu);
    return {box.at.x + box.width * ++used[gpu] / (ends[gpu] + 1), box.at.y};
  };
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Point from = attach(pairs[i].from), to = attach(pairs[i].to);
    const double y = floor - kBracket * levels[i];
    picture->line({from, {from.x, y}, {to.x, y}, to}, "nvlink");
    picture->text({(from.x + to.x) / 2, y - 5}, fmt::format("NV{}", pairs[i].count), "nvlink-text");
  }
  if (links.empty()) return;
  const double bar = floor - kBracket * level_count(levels) - kBar - 10;
  double left = 1e9, right = 0;
  bool equal = true;
  for (const auto& [gpu, count] : links) {
    const Box& box = gpus.at(gpu);
    left = std::min(left, box.at.x);
    right = std::max(right, box.at.x + box.width);
    equal &= count == links.begin()->second;
    const Point end = attach(gpu);
    picture->line({end, {end.x, bar + kBar}}, "nvlink");
    picture->text({end.x + 6, bar + kBar + 18}, fmt::format("{}", count), "nvlink-text",
                  Picture::Anchor::kStart);
  }
  picture->box({left, bar}, right - left, kBar, "nvswitch");
  picture->text({(left + right) / 2, bar + kBar / 2 + 5},
                equal ? fmt::format("NVSwitch: {} NVLinks from each GPU, NV{} between any two",
                                    links.begin()->second, links.begin()->second)
                      : "NVSwitch",
                "heading");
}

}  // namespace gradring::tools
