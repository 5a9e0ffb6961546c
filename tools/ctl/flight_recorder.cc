// gradringctl flight-recorder [JOB]: what the daemon did last, read from its file and not from
// itself.
#include <fmt/format.h>

#include <boost/program_options.hpp>

#include "tools/common/option_error.h"
#include "tools/common/text.h"
#include "tools/ctl/flight/show.h"

namespace gradring::tools {
namespace {

namespace po = boost::program_options;

tl::expected<FlightQuestion, Status> parse_flight_recorder(const Arguments& arguments) {
  FlightQuestion question;
  std::vector<std::string> jobs;
  int64_t last = static_cast<int64_t>(question.last);
  po::options_description known;
  known.add_options()("last", po::value(&last))("job", po::value(&jobs));
  po::positional_options_description positions;
  positions.add("job", -1);
  try {
    po::variables_map values;
    po::store(po::command_line_parser(arguments).options(known).positional(positions).run(),
              values);
    po::notify(values);
  } catch (const po::error& error) {
    return tl::unexpected(Status(Code::kInvalidArgument, printable(words_of(error))));
  }
  if (jobs.size() > 1 || (!jobs.empty() && jobs[0].empty())) {
    return tl::unexpected(Status(Code::kInvalidArgument, "it takes the name of one job, or none"));
  }
  if (last < 0) {
    return tl::unexpected(
        Status(Code::kInvalidArgument, "--last takes a number of events, 0 for all"));
  }
  question.last = static_cast<uint64_t>(last);
  if (!jobs.empty()) question.job = jobs[0];
  return question;
}

}  // namespace

Result run_flight_recorder(const Context& context, const Arguments& arguments) {
  const auto question = parse_flight_recorder(arguments);
  if (!question) return tl::unexpected(question.error());
  std::vector<ToldLife> lives;
  std::vector<Status> faults;
  for (const char* name : {kFlightFileBefore, kFlightFile}) {
    auto life = read_flight_file(context.runtime_dir + "/" + name);
    if (life) {
      const Fate fate = fate_of(life->header);
      lives.push_back({std::move(*life), fate, name == kFlightFileBefore});
    } else if (life.error().code() != Code::kUnavailable) {
      faults.push_back(life.error());
    }
  }
  if (lives.empty() && !faults.empty()) return tl::unexpected(faults.back());
  if (lives.empty()) {
    return tl::unexpected(
        Status(Code::kUnavailable,
               fmt::format("no flight recorder in {}: no gradringd has run there, or its "
                           "flight-recorder-size is 0; start one with: gradringd --runtime-dir {}",
                           context.runtime_dir, context.runtime_dir)));
  }
  auto answer = show(lives, *question, context.style);
  if (!answer) return answer;
  for (const Status& fault : faults) answer->problems.push_back(printable(fault.message()));
  return answer;
}

}  // namespace gradring::tools
