#pragma once

#include <string>
#include <string_view>

namespace gradring {

// `word` as it is to be typed, so that a POSIX shell reads one word of it: in quotes where the
// shell would read more into it, as into a group's name, train[0,2].
std::string shell_word(std::string_view word);

}  // namespace gradring
