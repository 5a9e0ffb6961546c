#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/fd.h"

namespace gradring::daemon {

// Who is at the other end of a connected AF_UNIX socket, by the kernel's word.
struct Credentials {
  uint32_t uid = 0;
  int64_t pid = 0;  // 0: in a pid namespace that this one cannot see

  bool operator==(const Credentials&) const = default;
};
Credentials credentials_of(int socket);
std::string describe(const Credentials& who);  // "pid 71, uid 1000"

// Whether a user id stands for one user. In a user namespace (`uid_map`: /proc/self/uid_map) all
// users who are not mapped into it come as one id, `overflow_uid`.
bool is_one_user(uint32_t uid, const std::string& uid_map, uint32_t overflow_uid);
bool is_one_user(uint32_t uid);  // as this process sees it

// A descriptor that becomes readable when the process at the other end of `socket` has ended.
// Invalid when it has ended already or cannot be seen; then the socket's own end of file has to do.
Fd open_pidfd(int socket, int64_t pid);

// Of any process, by number. Invalid when there is none.
Fd open_pidfd_of(int64_t pid);

// Letter of /proc/PID/stat: R, S, D, T (stopped), Z (ended, not yet waited for) ...; '?' if
// unknown.
char process_state(int64_t pid);

// How a process ended whose pidfd is readable: "killed by signal 9 (SIGKILL)", "exited with status
// 3". Nothing where the kernel does not tell: before its parent has waited for it, to a daemon that
// may not look into it (another uid, no CAP_SYS_PTRACE); afterwards, before Linux 6.15.
std::optional<std::string> how_it_ended(int pidfd, int64_t pid);

// Resident bytes, those of them that no file or segment has, processor seconds and open descriptors
// of this process.
uint64_t own_rss_bytes();
uint64_t own_anonymous_bytes();
double own_cpu_seconds();
uint64_t own_open_files();

// The same, counted anew four times a second at most: it takes long where there are many, and
// anybody may ask. Control thread.
uint64_t own_open_files_lately();

}  // namespace gradring::daemon
