// gradringctl doctor: what usually goes wrong, on this node and between it and the others.
#include <boost/program_options.hpp>

#include "tools/common/option_error.h"
#include "tools/common/text.h"
#include "tools/ctl/command.h"
#include "tools/ctl/doctor/gather.h"
#include "tools/ctl/doctor/show.h"

namespace gradring::tools {
namespace {

namespace po = boost::program_options;

// Daemons count anew four times in `suspect`, a second by default.
constexpr double kLookLeast = 0.5;
constexpr double kLookMost = 60;

tl::expected<double, Status> parse_doctor(const Arguments& arguments) {
  double seconds = 2;
  po::options_description known;
  known.add_options()("seconds", po::value(&seconds));
  try {
    po::variables_map values;
    po::store(po::command_line_parser(arguments).options(known).positional({}).run(), values);
    po::notify(values);
  } catch (const po::error& error) {
    return tl::unexpected(Status(Code::kInvalidArgument, printable(words_of(error))));
  }
  if (seconds >= kLookLeast && seconds <= kLookMost) return seconds;
  return tl::unexpected(Status(Code::kInvalidArgument, "--seconds takes 0.5 to 60"));
}

}  // namespace

Result run_doctor(const Context& context, const Arguments& arguments) {
  const auto seconds = parse_doctor(arguments);
  if (!seconds) return tl::unexpected(seconds.error());
  if (!context.node.empty()) {
    return tl::unexpected(
        Status(Code::kInvalidArgument, "it looks at the machine on which it runs: run it there"));
  }
  doctor::Facts facts;
  facts.runtime_dir = context.runtime_dir;
  doctor::gather_ring(context.runtime_dir, *seconds, &facts);
  const pid_t daemon =
      facts.nodes.empty() ? 0 : static_cast<pid_t>(facts.nodes.front().status.pid());
  doctor::gather_host("", daemon, &facts);
  return doctor::show(doctor::examine(facts), context.style);
}

}  // namespace gradring::tools
