#include "tools/ctl/topology/recordings.h"

#include <fmt/format.h>

#include "proto/shell_word.h"
#include "tools/common/text.h"
#include "transport/machine/look.h"
#include "transport/machine/look_apart.h"
#include "transport/machine/recording.h"

namespace gradring::tools {

Result record_machine(const std::string& folder) {
  const auto sight = machine::look({});
  if (!sight) return tl::unexpected(sight.error());
  Status status = machine::write_recording(folder, sight->seen.xml, sight->answers);
  if (!status.ok()) return tl::unexpected(status);
  Answer answer;
  answer.text = fmt::format(
      "this machine is written down in {}: {} and {}, with its addresses, names and serial "
      "numbers\n"
      "show it anywhere with: gradringctl topology --replay {}\n",
      printable(folder), machine::kTreeFile, machine::kAnswersFile, printable(shell_word(folder)));
  answer.json = {{"nodes", nlohmann::ordered_json::array()}, {"recorded", folder}};
  return answer;
}

tl::expected<TopologyReports, Status> replay_machine(const std::string& folder) {
  constexpr int kPatienceMs = 20'000;
  if (!is_utf8(folder)) {
    return tl::unexpected(Status(
        Code::kInvalidArgument,
        fmt::format("--replay {}: the name is not UTF-8; rename the folder", printable(folder))));
  }
  machine::LookOptions options;
  options.recording = folder;
  machine::LookApart look;
  look.start(options);
  look.wait(kPatienceMs);
  if (!look.report().fault().empty()) {
    return tl::unexpected(Status(Code::kNotFound, printable(look.report().fault())));
  }
  wire::TopologyReport report;
  *report.mutable_machine() = look.report();
  report.set_node(look.report().host());
  return TopologyReports{report};
}

}  // namespace gradring::tools
