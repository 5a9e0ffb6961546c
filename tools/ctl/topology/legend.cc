#include "tools/ctl/topology/legend.h"

#include <algorithm>

#include "tools/ctl/topology/names.h"
#include "tools/ctl/topology/nvlinks.h"

namespace gradring::tools {
namespace {

constexpr double kSample = 22, kBehindSample = 7, kLetterWidth = 6.1, kBetween = 16;

class Legend {
 public:
  Legend(Point at, Picture* picture) : at_(at), picture_(picture) {}

  void box(std::string_view kind, std::string_view words) {
    picture_->box({at_.x, at_.y - 12}, kSample, 15, kind, 3);
    name(words);
  }
  void line(std::string_view kind, std::string_view words) {
    picture_->line({{at_.x, at_.y - 4}, {at_.x + kSample, at_.y - 4}}, kind);
    name(words);
  }
  double end() const { return at_.x - kBetween; }

 private:
  void name(std::string_view words) {
    picture_->text({at_.x + kSample + kBehindSample, at_.y}, words, "small",
                   Picture::Anchor::kStart);
    at_.x += kSample + kBehindSample + kLetterWidth * static_cast<double>(words.size()) + kBetween;
  }

  Point at_;
  Picture* picture_;
};

}  // namespace

double draw_legend(const wire::MachineReport& machine, bool any_switch, Point at,
                   Picture* picture) {
  bool used = false, idle = false, down = false;
  for (int i = 0; i < machine.nics_size(); ++i) {
    const wire::RailReport* rail = rail_of(machine, i);
    const bool up = machine.nics(i).up(), fit = rail != nullptr && rail->used();
    used |= up && fit;
    idle |= up && !fit;
    down |= !up;
  }
  const bool affinity =
      std::any_of(machine.affinity().begin(), machine.affinity().end(),
                  [](const wire::AffinityReport& one) { return one.choices_size() > 0; });
  Legend legend(at, picture);
  if (machine.gpus_size() > 0) legend.box("gpu", "GPU");
  if (used) legend.box("nic", "card fit for gradients");
  if (idle) legend.box("idle", "card for other things");
  if (down) legend.box("down", "link is down");
  if (any_switch) legend.box("switch", "PCIe switch");
  if (nvlink_height(machine) > 0) legend.line("nvlink", "NVLink");
  if (affinity) legend.line("affinity", "GPU uses card");
  if (machine.sockets_size() > 1) legend.line("system", "between sockets");
  return legend.end();
}

}  // namespace gradring::tools
