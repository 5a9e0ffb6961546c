#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "client.pb.h"
#include "proto/status.h"

namespace gradring::tools {

// Colour, where there is a terminal to show it.
struct Style {
  bool colour = false;

  std::string good(std::string_view text) const { return paint("32", text); }
  std::string bad(std::string_view text) const { return paint("31", text); }
  std::string faint(std::string_view text) const { return paint("2", text); }

 private:
  std::string paint(std::string_view code, std::string_view text) const;
};

// What a command has to say, for people and for scripts, from one source. `problems` are sentences;
// if there is one, what was asked about is unhealthy.
struct Answer {
  std::string text;
  nlohmann::ordered_json json;  // as tools/schema says, but for what document_of() adds
  std::vector<std::string> problems;
};

// Counts incompatible changes of tools/schema.
inline constexpr int kSchemaVersion = 1;
// What --json prints: the answer with schema_version in front, healthy and problems behind.
nlohmann::ordered_json document_of(const Answer& answer);

struct Context {
  std::string runtime_dir;
  std::string node{};  // whom the daemon there asks; empty: nobody, it answers itself
  Style style{};
  bool json = false;  // an answer is wanted, and for scripts
};

using Arguments = std::vector<std::string>;   // of the command, options included
using Result = tl::expected<Answer, Status>;  // INVALID_ARGUMENT: usage

Result run_status(const Context& context, const Arguments& arguments);
Result run_peers(const Context& context, const Arguments& arguments);
Result run_jobs(const Context& context, const Arguments& arguments);
Result run_job(const Context& context, const Arguments& arguments);
Result run_topology(const Context& context, const Arguments& arguments);
Result run_flight_recorder(const Context& context, const Arguments& arguments);
Result run_bandwidth(const Context& context, const Arguments& arguments);
Result run_top(const Context& context, const Arguments& arguments);
Result run_trace(const Context& context, const Arguments& arguments);
Result run_doctor(const Context& context, const Arguments& arguments);
Result run_events(const Context& context, const Arguments& arguments);
Result run_set(const Context& context, const Arguments& arguments);
Result run_support_bundle(const Context& context, const Arguments& arguments);
Result run_drain(const Context& context, const Arguments& arguments);
Result run_keygen(const Context& context, const Arguments& arguments);

// The renderings, apart from the question.
Answer show(const wire::StatusReport& report, const Style& style);
Answer show(const wire::PeersReport& report, const Style& style);
Answer show(const wire::JobsReport& report, const Style& style);
Answer show(const wire::JobReport& report, const Style& style);

// What both job commands tell of a job.
nlohmann::ordered_json to_json(const wire::JobSummary& summary);
// A row for each, in this order.
std::string table_of(const std::vector<wire::JobSummary>& jobs, const Style& style);
// That it has failed and has ranks here still, or forms for long; empty: nothing is wrong with it.
std::string problem_of(const wire::JobSummary& job);

// The refusal of an argument that the command does not take.
Status no_arguments(const Arguments& arguments);

// The arguments without a "--", of a command that has no options of its own.
Arguments without_bar(const Arguments& arguments);

// Milliseconds of a report as the seconds of the JSON.
double seconds(uint64_t milliseconds);

}  // namespace gradring::tools
