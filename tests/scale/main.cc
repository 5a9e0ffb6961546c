// gradring-scale: what the cost model says, as JSON. tools/scaling makes a page of it.

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "proto/version.h"
#include "tests/scale/model.h"
#include "tests/scale/ring.h"

namespace po = boost::program_options;
using nlohmann::json;
using nlohmann::ordered_json;

namespace gradring::scale {
namespace {

struct Orders {
  std::string command;
  std::string folder;
  std::string machine;
  std::string model;
  std::vector<uint32_t> nodes;
  std::vector<uint64_t> bytes;
  std::vector<std::string> wires;
  std::vector<std::string> changes;
  uint64_t bucket = 0;
  uint32_t steps = 0;
  bool flat = false;
  bool exact = false;
};

// Up to as many, every node is run; beyond, one stands for all.
constexpr uint32_t kNodesExact = 8;

WireType wire_named(const std::string& name) {
  const auto wire = parse_wire_type(name);
  if (!wire || *wire == WireType::kFloat16) {
    throw std::runtime_error("--wire wants native, bf16 or int8, got '" + name + "'");
  }
  return *wire;
}

Machine machine_named(const Machines& machines, const std::string& name) {
  const auto it = machines.find(name);
  if (it == machines.end()) throw std::runtime_error("machines.json has no machine '" + name + "'");
  return it->second;
}

// Of these 0 is no cost that is left out, but a machine that does nothing.
constexpr std::array kNeeded = {"ranks",        "processors",  "lanes",
                                "lane_gbit",    "thread_gbs",  "memory_gbs",
                                "payload_part", "slice_bytes", "slots"};

bool is_cost(const std::string& field, double value) {
  const bool needed = std::ranges::find(kNeeded, field) != kNeeded.end();
  return std::isfinite(value) && (needed ? value > 0 : value >= 0);
}

// As machines.json has it, but for what --set says.
Machine machine_of(const Orders& orders) {
  Machine machine = machine_named(read_machines(orders.folder + "/machines.json"), orders.machine);
  for (const std::string& change : orders.changes) {
    const size_t equals = std::min(change.find('='), change.size());
    const std::string field = change.substr(0, equals);
    const std::string number = change.substr(std::min(equals + 1, change.size()));
    const char* const end = number.data() + number.size();
    double value = 0;
    const auto read = std::from_chars(number.data(), end, value);
    const bool good = read.ec == std::errc() && read.ptr == end && is_cost(field, value) &&
                      set_field(&machine, field, value);
    if (!good) {
      throw std::runtime_error("--set wants FIELD=NUMBER as machines.json has it, got '" + change +
                               "'");
    }
  }
  return machine;
}

ordered_json told(const Setup& setup, const Step& step, uint32_t steps) {
  const Outcome outcome = Ring(setup, step).run(steps);
  ordered_json line;
  line["machine"] = setup.machine.name;
  line["nodes"] = setup.nodes;
  line["ranks"] = setup.nodes * static_cast<uint32_t>(setup.machine.ranks);
  line["hierarchy"] = setup.hierarchy;
  line["wire"] = name_of(setup.wire);
  line["bytes"] = step.bucket_bytes * step.ready.size();
  line["buckets"] = step.ready.size();
  line["compute_ms"] = static_cast<double>(step.compute) / core::kMillisecond;
  line["ms"] = outcome.step_ms;
  line["busy_part"] = outcome.busy_part;
  line["frames"] = outcome.frames;
  line["sent_bytes"] = outcome.bytes;
  line["thinking_ms"] = outcome.thinking_ms;
  return line;
}

void say(const ordered_json& line) { std::cout << line.dump() << '\n' << std::flush; }

Setup setup_of(const Orders& orders, const Machine& machine, uint32_t nodes,
               const std::string& wire) {
  Setup setup{machine, nodes, !orders.flat, wire_named(wire)};
  setup.mirrored = nodes > kNodesExact && !machine.shared && !orders.exact;
  return setup;
}

void allreduce(const Orders& orders) {
  const Machine machine = machine_of(orders);
  for (const uint32_t nodes : orders.nodes) {
    for (const std::string& wire : orders.wires) {
      for (const uint64_t bytes : orders.bytes) {
        Setup setup = setup_of(orders, machine, nodes, wire);
        setup.mirrored = setup.mirrored && goes_along_the_ring(setup, bytes);
        say(told(setup, loop_of(bytes), orders.steps));
      }
    }
  }
}

void train(const Orders& orders) {
  const Machine machine = machine_of(orders);
  bool found = false;
  for (const Model& model : read_models(orders.folder + "/models.json")) {
    if (!orders.model.empty() && model.name != orders.model) continue;
    found = true;
    for (const uint32_t nodes : orders.nodes) {
      for (const std::string& wire : orders.wires) {
        const Step step = step_of(model, orders.bucket);
        ordered_json line = told(setup_of(orders, machine, nodes, wire), step, orders.steps);
        line["model"] = model.name;
        line["efficiency"] = model.compute_ms / line["ms"].get<double>();
        say(line);
      }
    }
  }
  if (!found) throw std::runtime_error("models.json has no model '" + orders.model + "'");
}

// Each figure that was measured, beside what the model says.
void check(const Orders& orders) {
  const Machines machines = read_machines(orders.folder + "/machines.json");
  std::ifstream file(orders.folder + "/figures.json");
  const json all = json::parse(file);
  for (const json& figure : all.at("figures")) {
    Machine machine = machine_named(machines, "namespaces");
    for (const char* field : {"ranks", "lane_gbit"}) {
      set_field(&machine, field, figure.at(field).get<double>());
    }
    const Setup setup{machine, figure.at("nodes").get<uint32_t>(), true,
                      wire_named(figure.at("wire").get<std::string>())};
    // As tools/compare does it: as many calls back to back as 20 ms have room for.
    const auto calls = static_cast<uint32_t>(1 + 20 / figure.at("ms").get<double>());
    ordered_json line = told(setup, loop_of(figure.at("bytes").get<uint64_t>()), calls);
    for (const char* field : {"scenario", "date"}) line[field] = figure.at(field);
    line["fitted"] = figure.value("fitted", false);
    line["note"] = figure.value("note", "");
    line["measured_ms"] = figure.at("ms");
    line["error"] = line["ms"].get<double>() / figure.at("ms").get<double>() - 1;
    say(line);
  }
}

template <class Number>
void expect(const char* flag, Number value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return;
  throw std::runtime_error(std::string(flag) + " wants " + std::to_string(least) + " to " +
                           std::to_string(most));
}

void judge(const Orders& orders) {
  constexpr uint64_t kBytesMost = uint64_t{1} << 40;
  for (const uint32_t nodes : orders.nodes) expect("--nodes", nodes, 1, 65536);
  for (const uint64_t bytes : orders.bytes) expect("--bytes", bytes, 1, kBytesMost);
  expect("--bucket", orders.bucket, 1, kBytesMost);
  expect("--steps", orders.steps, 1, 1'000'000);
}

// Nothing where help or the version was asked for, and is printed.
std::optional<Orders> orders_of(int argc, char** argv) {
  Orders orders;
  po::options_description options(
      "gradring-scale COMMAND: gradring's core under virtual time, with the costs of a machine\n"
      "  check      the figures of figures.json, measured and predicted\n"
      "  allreduce  one after the other\n"
      "  train      steps of a model of models.json");
  options.add_options()("help", "this text")("version", "print the version");
  options.add_options()("command", po::value(&orders.command), "the COMMAND");
  options.add_options()("folder", po::value(&orders.folder)->default_value(GRADRING_SCALE_FOLDER),
                        "where machines.json, models.json and figures.json are");
  options.add_options()("machine", po::value(&orders.machine)->default_value("servers-25g"),
                        "of machines.json");
  options.add_options()("model", po::value(&orders.model), "of models.json; default: all");
  options.add_options()("nodes", po::value(&orders.nodes)->multitoken(), "how many, several too");
  options.add_options()("bytes", po::value(&orders.bytes)->multitoken(), "of float32, likewise");
  options.add_options()("wire", po::value(&orders.wires)->multitoken(), "native, bf16, int8");
  options.add_options()("set", po::value(&orders.changes)->multitoken(),
                        "another number for a field of the machine, as thread_gbs=20");
  options.add_options()("bucket", po::value(&orders.bucket)->default_value(64 << 20),
                        "bytes that are handed over together, at most");
  options.add_options()("steps", po::value(&orders.steps)->default_value(2), "measured");
  options.add_options()("flat", po::bool_switch(&orders.flat),
                        "each rank is in the ring, none are summed in their node first");
  options.add_options()("exact", po::bool_switch(&orders.exact),
                        "run every node, however many there are");
  po::positional_options_description positional;
  positional.add("command", 1);
  po::variables_map values;
  po::store(po::command_line_parser(argc, argv).options(options).positional(positional).run(),
            values);
  po::notify(values);
  if (values.count("help") > 0) {
    std::cout << options;
    return std::nullopt;
  }
  if (values.count("version") > 0) {
    std::cout << "gradring-scale " << kProductVersion << "\n";
    return std::nullopt;
  }
  if (orders.nodes.empty()) orders.nodes = {4};
  if (orders.bytes.empty()) orders.bytes = {64 << 20};
  if (orders.wires.empty()) orders.wires = {"native"};
  judge(orders);
  return orders;
}

int run(int argc, char** argv) {
  try {
    const std::optional<Orders> told = orders_of(argc, argv);
    if (!told) return 0;
    const Orders& orders = *told;
    if (orders.command == "check") {
      check(orders);
    } else if (orders.command == "allreduce") {
      allreduce(orders);
    } else if (orders.command == "train") {
      train(orders);
    } else {
      throw std::runtime_error("the command is check, allreduce or train, not '" + orders.command +
                               "'");
    }
  } catch (const std::exception& error) {
    std::cerr << "gradring-scale: " << error.what() << "; see --help\n";
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace gradring::scale

int main(int argc, char** argv) { return gradring::scale::run(argc, argv); }
