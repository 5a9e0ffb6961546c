#pragma once

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

// The flags of horovodrun that gradring-run takes besides its own, so that a command which began
// with the one can begin with the other.
namespace gradring::tools {

struct RunOptions;

// One that changes nothing here.
struct HorovodFlag {
  std::string_view name;
  std::string_view values;  // what it takes, a word for each; empty: nothing
  bool refused = false;     // rather than accepted: without it the launch would be another one
  std::string_view why;     // it needs nothing, or what to do instead
};
std::span<const HorovodFlag> flags_without_effect();

// Those that do something. 0 and empty: not given.
struct HorovodFlags {
  std::string hostfile, ssh_identity_file, output, timeline;
  int slots = 0, ssh_port = 0;
  int start_timeout = 0, gloo_timeout = 0;  // seconds
  int stall_warning = 0;                    // likewise
  bool no_stall_check = false;
  int min_ranks = 0, max_ranks = 0;
};

// Of one dash and several letters, as argparse takes them and Boost.Program_options does not.
void spell_for_boost(std::vector<std::string>* words);

// All flags; those that do something are written to `flags` and `options`.
void describe_horovod_flags(HorovodFlags* flags, RunOptions* options,
                            boost::program_options::options_description* all);

// Does in `options`, which have all else already, what the flags say. The error is a sentence.
tl::expected<void, std::string> take_horovod_flags(const HorovodFlags& flags, RunOptions* options);

// A sentence if one was given that is refused.
tl::expected<void, std::string> refuse_flags(const boost::program_options::variables_map& given);
// One line about all that were given and need nothing; empty if there are none.
std::string describe_needless(const boost::program_options::variables_map& given);

}  // namespace gradring::tools
