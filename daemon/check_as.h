#pragma once

#include <string>

namespace gradring::daemon {

// Makes root, who asks whether a configuration is good, the user whose daemon is to take it: root
// can read a key that is closed to gradringd. That user is the one whose `runtime_dir` is, or whose
// daemon serves there. Returns its name, or nothing where this process stays who it is.
std::string become_user_of(const std::string& runtime_dir);

}  // namespace gradring::daemon
