#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tools/common/text.h"
#include "tools/ctl/topology/draw.h"
#include "tools/ctl/topology/legend.h"
#include "tools/ctl/topology/names.h"
#include "tools/ctl/topology/nvlinks.h"
#include "tools/ctl/topology/tree.h"

namespace gradring::tools {
namespace {

using Anchor = Picture::Anchor;

constexpr double kDeviceWidth = 128, kDeviceHeight = 62;
constexpr double kGap = 12;     // between neighbours
constexpr double kRowGap = 26;  // between GPUs and cards: there the lines of affinity are seen
constexpr double kLabel = 20;   // height of a box's own title, at its foot
constexpr double kMargin = 24;
constexpr double kCpuLine = 17;
constexpr double kSocketWidthMin = 400, kWidthMin = 640;
constexpr double kAside =
    32;  // where lines leave a GPU for another box, so that labels are clear of them

// A picture of the machine that is being drawn, and where its devices have come to lie.
class MachineDrawing {
 public:
  explicit MachineDrawing(const wire::MachineReport& machine) : machine_(machine) {}

  Picture draw(const std::string& node) {
    std::vector<Branch> trees;
    Size row_size{kMargin, 0};
    for (int socket = 0; socket < machine_.sockets_size(); ++socket) {
      trees.push_back(tree_of(machine_, socket));
      const Size size = socket_size(socket, trees.back());
      row_size.width += size.width + kMargin;
      row_size.height = std::max(row_size.height, size.height);
    }
    const Branch loose = tree_of(machine_, -1);
    const bool any_loose = !loose.branches.empty() || !loose.gpus.empty() || !loose.nics.empty();
    const Size loose_size = any_loose ? socket_size(-1, loose) : Size{};
    const double top = 64 + nvlink_height(machine_);
    const double row_top = top + loose_size.height + (any_loose ? kMargin : 0);
    picture_.width = std::max({row_size.width, loose_size.width + 2 * kMargin, kWidthMin});
    picture_.height = row_top + row_size.height + 62;
    picture_.text({kMargin, 36}, fitted(title(node), picture_.width - 2 * kMargin, 21), "title",
                  Anchor::kStart);
    if (any_loose) {
      draw_socket(-1, loose, {(picture_.width - loose_size.width) / 2, top}, loose_size);
    }
    double x = (picture_.width - row_size.width) / 2 + kMargin;
    for (int socket = 0; socket < machine_.sockets_size(); ++socket) {
      const Branch& tree = trees[static_cast<size_t>(socket)];
      const double width = socket_size(socket, tree).width;
      draw_socket(socket, tree, {x, row_top}, {width, row_size.height});
      const double middle = row_top + row_size.height - 30;
      if (socket > 0) picture_.line({{x - kMargin, middle}, {x, middle}}, "system");
      x += width + kMargin;
    }
    draw_nvlinks(machine_, gpus_, top - 14, &picture_);
    draw_affinity();
    for (const Label& label : labels_) {
      picture_.box({label.at.x - 3, label.at.y - 11}, label.width, 15, label.kind, 2);
      picture_.text(label.at, label.text, "small", Anchor::kStart);
    }
    const double legend_end =
        draw_legend(machine_, any_switch_, {kMargin, row_top + row_size.height + 34}, &picture_);
    picture_.width = std::max(picture_.width, legend_end + kMargin);
    return std::move(picture_);
  }

 private:
  struct Size {
    double width = 0;
    double height = 0;
  };
  struct Label {  // drawn last: over the lines
    Point at;
    double width;
    std::string text;
    std::string_view kind;
  };

  std::string title(const std::string& node) const {
    std::string text = node.empty() ? printable(machine_.host()) : printable(node);
    if (!node.empty() && machine_.host() != node) text += " (" + printable(machine_.host()) + ")";
    return fmt::format("{}: {}, {}, {}", text, counted(machine_.sockets_size(), "socket"),
                       counted(machine_.gpus_size(), "GPU"),
                       counted(machine_.nics_size(), "network card"));
  }

  // ---- sizes ----

  // A row of things of these sizes.
  static Size row(const std::vector<Size>& parts) {
    Size size;
    for (const Size& part : parts) {
      size.width += part.width + (size.width > 0 ? kGap : 0);
      size.height = std::max(size.height, part.height);
    }
    return size;
  }

  // GPUs and what holds some are above, cards and what holds only cards below.
  std::vector<Size> part_sizes(const Branch& branch, bool above) const {
    std::vector<Size> parts(above ? branch.gpus.size() : branch.nics.size(),
                            {kDeviceWidth, kDeviceHeight});
    for (const Branch& child : branch.branches) {
      if (child.has_gpu() == above) parts.push_back(box_size(child));
    }
    return parts;
  }

  Size content_size(const Branch& branch) const {
    const Size above = row(part_sizes(branch, true)), below = row(part_sizes(branch, false));
    const double between = above.height > 0 && below.height > 0 ? kRowGap : 0;
    return {std::max(above.width, below.width), above.height + between + below.height};
  }

  Size box_size(const Branch& branch) const {
    const Size inner = content_size(branch);
    return {inner.width + 2 * kGap, inner.height + kGap + kLabel + 4};
  }

  double cpu_height(int socket) const {
    if (socket < 0) return 0;
    return 14 + kCpuLine * (1 + static_cast<double>(numa_lines(socket).size()));
  }

  Size socket_size(int socket, const Branch& tree) const {
    const Size inner = content_size(tree);
    const double cpu = cpu_height(socket);
    const double gap = inner.height > 0 && cpu > 0 ? kGap : 0;
    const double least = socket < 0 ? 0 : kSocketWidthMin;
    return {std::max(inner.width + 2 * kGap, least),
            inner.height + cpu + gap + 2 * kGap + (socket < 0 ? kLabel : 0)};
  }

  std::vector<std::string> numa_lines(int socket) const {
    std::vector<std::string> lines;
    for (const auto& numa : machine_.numa()) {
      if (numa.socket() != socket) continue;
      lines.push_back(fmt::format("NUMA node {}: CPUs {}, {}", numa.id(), short_cpus(numa.cpus()),
                                  memory_name(numa.memory_bytes())));
    }
    return lines;
  }

  // ---- boxes ----

  void draw_socket(int socket, const Branch& tree, Point at, Size size) {
    picture_.box(at, size.width, size.height, "socket", 10);
    draw_content(tree, {at.x + kGap, at.y + kGap}, size.width - 2 * kGap);
    if (socket < 0) {
      const std::string label = "PCI that belongs to no socket, as far as is known";
      picture_.text({at.x + size.width / 2, at.y + size.height - 10}, fitted(label, size.width, 11),
                    "small");
      return;
    }
    const double height = cpu_height(socket);
    const double top = at.y + size.height - height - kGap;
    picture_.box({at.x + kGap, top}, size.width - 2 * kGap, height, "cpu");
    const std::string name = fmt::format("socket {}: {}", machine_.sockets(socket).id(),
                                         short_model(machine_.sockets(socket).model()));
    const double room = size.width - 4 * kGap, middle = at.x + size.width / 2;
    picture_.text({middle, top + 20}, fitted(name, room, 13), "heading");
    double y = top + 20 + kCpuLine;
    for (const std::string& line : numa_lines(socket)) {
      picture_.text({middle, y}, fitted(line, room, 11), "small");
      y += kCpuLine;
    }
  }

  void draw_content(const Branch& branch, Point at, double width) {
    const Size above = row(part_sizes(branch, true)), below = row(part_sizes(branch, false));
    draw_row(branch, true, {at.x + (width - above.width) / 2, at.y});
    const double between = above.height > 0 ? above.height + kRowGap : 0;
    draw_row(branch, false, {at.x + (width - below.width) / 2, at.y + between});
  }

  // In the order of what is first in each: the one that GPUs and cards are numbered in.
  void draw_row(const Branch& branch, bool above, Point at) {
    for (const int device : above ? branch.gpus : branch.nics) {
      if (above) {
        draw_gpu(device, at);
      } else {
        draw_nic(device, at);
      }
      at.x += kDeviceWidth + kGap;
    }
    for (const Branch& child : branch.branches) {
      if (child.has_gpu() != above) continue;
      const Size size = box_size(child);
      const bool root = child.is_root_complex();
      any_switch_ |= !root;
      const bool apart = child.gpus.size() > 1 && part_sizes(child, false).empty();
      if (apart) apart_.insert(child.gpus.begin(), child.gpus.end());
      const double aside = kGap + (apart ? kAside + 8 : 0);
      picture_.box(at, size.width, size.height, root ? "root" : "switch");
      const std::string title = fitted(title_of(child), size.width - kGap - aside, 11);
      labels_.push_back({{at.x + aside, at.y + size.height - 8},
                         6.2 * static_cast<double>(width_of(title)) + 6,
                         title,
                         root ? "root-label" : "switch-label"});
      draw_content(child, {at.x + kGap, at.y + kGap}, size.width - 2 * kGap);
      at.x += size.width + kGap;
    }
  }

  void draw_gpu(int index, Point at) {
    const wire::GpuReport& gpu = machine_.gpus(index);
    gpus_[index] = {at, kDeviceWidth, kDeviceHeight};
    device(at, "gpu", gpu_name(index), short_model(gpu.name()), gpu.place().pci());
  }

  void draw_nic(int index, Point at) {
    const wire::NicReport& nic = machine_.nics(index);
    const wire::RailReport* rail = rail_of(machine_, index);
    const bool used = rail != nullptr && rail->used();
    nics_[index] = at;
    const std::string_view kind = !nic.up() ? "down" : used ? "nic" : "idle";
    const std::string kept = bond_of(nic).empty() ? kind_of(nic) : bond_of(nic);
    const std::string rate = !nic.up()             ? "down: "
                             : nic.rate_bps() == 0 ? ""
                                                   : rate_name(nic.rate_bps()) + " ";
    const std::string what = rate + kept;
    device(at, kind, nic.name(), what, nic.place().pci());
  }

  void device(Point at, std::string_view kind, const std::string& name, const std::string& what,
              const std::string& pci) {
    picture_.box(at, kDeviceWidth, kDeviceHeight, kind);
    const double middle = at.x + kDeviceWidth / 2, room = kDeviceWidth - 6;
    picture_.text({middle, at.y + 20}, fitted(name, room, 13), "heading");
    picture_.text({middle, at.y + 36}, fitted(what, room, 11), "small");
    picture_.text({middle, at.y + 52}, fitted(short_pci(pci), room, 11), "small");
  }

  // ---- lines ----

  void draw_affinity() {
    std::map<uint32_t, int> met;  // lines that end at a card already
    std::map<uint32_t, int> all;
    for (const auto& one : machine_.affinity()) {
      for (const auto& choice : one.choices()) ++all[choice.nic()];
    }
    for (const auto& one : machine_.affinity()) {
      const int count = one.choices_size();
      for (int i = 0; i < count; ++i) {
        const uint32_t nic = one.choices(i).nic();
        const auto gpu = gpus_.find(int(one.gpu()));
        const auto card = nics_.find(int(nic));
        if (gpu == gpus_.end() || card == nics_.end()) continue;
        const auto share = [](int k, int n) { return kDeviceWidth * (k + 1) / (n + 1); };
        const bool apart = apart_.count(gpu->first) > 0;
        const double out = apart ? kAside * (i + 1) / count : share(i, count);
        const Point from{gpu->second.at.x + out, gpu->second.at.y + kDeviceHeight};
        const Point bend{from.x,
                         from.y + (apart ? kLabel + 4 : 0)};  // straight down past the label
        const Point to{card->second.x + share(met[nic]++, all[nic]), card->second.y};
        const double half = (bend.y + to.y) / 2;
        picture_.path(fmt::format("M{:g} {:g}L{:g} {:g}C{:g} {:g} {:g} {:g} {:g} {:g}", from.x,
                                  from.y, bend.x, bend.y, bend.x, half, to.x, half, to.x, to.y),
                      "affinity");
      }
    }
  }

  const wire::MachineReport& machine_;
  Picture picture_;
  std::map<int, Box> gpus_;
  std::map<int, Point> nics_;
  std::vector<Label> labels_;
  std::set<int> apart_;  // GPUs in a box without cards
  bool any_switch_ = false;
};

}  // namespace

Picture draw_machine(const wire::MachineReport& machine, const std::string& node) {
  return MachineDrawing(machine).draw(node);
}

}  // namespace gradring::tools
