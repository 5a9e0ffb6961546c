#include "daemon/check_as.h"

#include <grp.h>
#include <pwd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "daemon/control/door/process.h"

namespace gradring::daemon {
namespace {

std::optional<struct stat> owner_of(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return std::nullopt;
  return status;
}

}  // namespace

std::string become_user_of(const std::string& runtime_dir) {
  if (geteuid() != 0) return "";
  // In a container root may serve in a folder that is another's.
  auto owner = owner_of(runtime_dir + "/control.sock");
  if (!owner) owner = owner_of(runtime_dir);
  if (!owner || owner->st_uid == 0 || !is_one_user(owner->st_uid)) return "";
  const passwd* entry = getpwuid(owner->st_uid);
  std::string name = entry != nullptr ? entry->pw_name : std::to_string(owner->st_uid);
  const gid_t group = entry != nullptr ? entry->pw_gid : owner->st_gid;
  // The unit gives its daemon as much memory to lock as it likes; a shell that became another user
  // would not.
  const rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
  setrlimit(RLIMIT_MEMLOCK, &all);
  const bool in_its_groups =
      entry != nullptr ? initgroups(entry->pw_name, group) == 0 : setgroups(0, nullptr) == 0;
  // Where root may not do that it looks as itself.
  if (!in_its_groups || setgid(group) != 0 || setuid(owner->st_uid) != 0) return "";
  return name;
}

}  // namespace gradring::daemon
