// For Graphviz: the same things as nodes and edges.
#include <fmt/format.h>

#include "tools/common/text.h"
#include "tools/ctl/topology/names.h"
#include "tools/ctl/topology/show.h"
#include "tools/ctl/topology/tree.h"

namespace gradring::tools {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

bool has_switch(const wire::MachineReport& machine) {
  for (const auto& gpu : machine.gpus()) {
    for (const auto& link : gpu.nvlinks()) {
      if (link.gpu() < 0) return true;
    }
  }
  return false;
}

class Dot {
 public:
  void machine(const wire::TopologyReport& report, size_t number) {
    const wire::MachineReport& machine = report.machine();
    prefix_ = fmt::format("m{}_", number);
    open(report.node().empty() ? machine.host() : report.node());
    for (int socket = -1; socket < machine.sockets_size(); ++socket) {
      const Branch tree = tree_of(machine, socket);
      if (socket >= 0) {
        open(fmt::format("socket {}: {}", machine.sockets(socket).id(),
                         machine.sockets(socket).model()));
        // An empty cluster is not drawn.
        if (tree.branches.empty() && tree.gpus.empty() && tree.nics.empty()) {
          line(quoted(fmt::format("{}socket{}", prefix_, socket)) + " [shape=point]");
        }
      }
      content(machine, tree);
      if (socket >= 0) close();
    }
    close();
    if (has_switch(machine)) line(id("NVSwitch") + " [label=NVSwitch]");
    for (int gpu = 0; gpu < machine.gpus_size(); ++gpu) {
      for (const auto& link : machine.gpus(gpu).nvlinks()) {
        if (link.gpu() < 0) {
          line(fmt::format("{} -> {} [dir=none, color=purple, label={}]", id(gpu_name(gpu)),
                           id("NVSwitch"), quoted(fmt::format("NV{}", link.count()))));
        } else if (link.gpu() > gpu) {
          line(fmt::format("{} -> {} [dir=none, color=purple, label={}]", id(gpu_name(gpu)),
                           id(gpu_name(link.gpu())), quoted(fmt::format("NV{}", link.count()))));
        }
      }
    }
    for (const auto& one : machine.affinity()) {
      for (const auto& choice : one.choices()) {
        line(fmt::format("{} -> {} [color=orange, label={}]", id(gpu_name(int(one.gpu()))),
                         id(nic_name(int(choice.nic()))), quoted(choice.distance())));
      }
    }
  }

  void ring(const wire::RingReport& ring, size_t number) {
    prefix_ = fmt::format("r{}_", number);
    open("ring of job " + ring.job());
    for (const auto& member : ring.members()) {
      line(fmt::format(
          "{} [label={}, style=filled, fillcolor=\"#e4f4e8\"]", id(member.node()),
          quoted(fmt::format("{}: {}", printable(member.node()),
                             ranges_of({member.ranks().begin(), member.ranks().end()})))));
    }
    close();
    for (int i = 0; i < ring.members_size() && ring.members_size() > 1; ++i) {
      line(fmt::format("{} -> {}", id(ring.members(i).node()),
                       id(ring.members((i + 1) % ring.members_size()).node())));
    }
  }

  std::string take() {
    return "digraph topology {\n  node [shape=box, fontname=Helvetica];\n  fontname=Helvetica;\n" +
           text_ + "}\n";
  }

 private:
  void line(const std::string& words) { text_ += fmt::format("{:{}}{};\n", "", indent_, words); }
  void open(const std::string& title) {
    text_ += fmt::format("{:{}}subgraph cluster_{} {{\n", "", indent_, clusters_++);
    indent_ += 2;
    line("label=" + quoted(title));
  }
  void close() {
    indent_ -= 2;
    text_ += fmt::format("{:{}}}}\n", "", indent_);
  }
  std::string id(const std::string& name) const { return quoted(prefix_ + name); }

  void content(const wire::MachineReport& machine, const Branch& branch) {
    for (const int gpu : branch.gpus) {
      line(fmt::format("{} [label={}, style=filled, fillcolor=\"#dff3e4\"]", id(gpu_name(gpu)),
                       quoted(gpu_name(gpu) + " " + machine.gpus(gpu).name())));
    }
    for (const int nic : branch.nics) {
      const wire::NicReport& card = machine.nics(nic);
      line(fmt::format("{} [label={}, style=filled, fillcolor={}]", id(nic_name(nic)),
                       quoted(fmt::format("{} {}", card.name(),
                                          card.up() ? rate_name(card.rate_bps()) : "down")),
                       card.up() ? "\"#dcebfa\"" : "\"#fbe9e7\""));
    }
    for (const Branch& child : branch.branches) {
      open(title_of(child));
      content(machine, child);
      close();
    }
  }

  std::string text_;
  std::string prefix_;
  int indent_ = 2;
  int clusters_ = 0;
};

}  // namespace

std::string dot_of(const TopologyReports& reports) {
  Dot dot;
  for (size_t i = 0; i < reports.size(); ++i) {
    if (nonsense_in(reports[i]).empty()) dot.machine(reports[i], i);
  }
  const auto rings = rings_of(reports);
  for (size_t i = 0; i < rings.size(); ++i) dot.ring(rings[i], i);
  return dot.take();
}

}  // namespace gradring::tools
