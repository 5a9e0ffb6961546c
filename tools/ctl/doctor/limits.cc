// What the system lets the daemon have: memory, files, processors; and the folder it lives in.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tools/common/size.h"
#include "tools/common/text.h"
#include "tools/ctl/doctor/finding.h"

namespace gradring::tools::doctor {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
// A job of 64 MiB staging and its trainers' buffers; what RDMA moves must be locked.
constexpr uint64_t kMemlockLeast = uint64_t{1} << 30;
// Three a trainer and two a peer, and some hundred of the libraries.
constexpr uint64_t kFilesLeast = 4096;
// What container engines give by default; frameworks' loaders of data need more, not gradring.
constexpr uint64_t kShmOfContainers = uint64_t{64} << 20;

bool uses_rdma(const Facts& facts) {
  return std::ranges::any_of(facts.topology.lanes(), [](const wire::LaneChoice& lane) {
    return lane.device().find("RDMA") != std::string::npos;
  });
}

Finding memlock(const Facts& facts) {
  const LimitFacts& limits = facts.limits;
  if (!limits.memlock) return skip("memlock", "cannot be read");
  const std::string whose = limits.of_daemon ? "" : " (of this shell: the daemon's cannot be read)";
  if (limits.may_lock_all) return ok("memlock", "no limit holds: CAP_IPC_LOCK" + whose);
  if (*limits.memlock == kUnlimited) return ok("memlock", "unlimited" + whose);
  const std::string found = format_bytes(*limits.memlock) + whose;
  if (*limits.memlock >= kMemlockLeast) return ok("memlock", found);
  const char* remedy =
      "LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited; in a container --ulimit "
      "memlock=-1";
  return uses_rdma(facts) ? fail("memlock", found + ", and RDMA locks what it sends", remedy)
                          : ok("memlock", found + "; enough for TCP, RDMA needs more");
}

Finding open_files(const LimitFacts& limits) {
  if (!limits.open_files) return skip("open files", "cannot be read");
  if (*limits.open_files >= kFilesLeast) {
    return ok("open files", fmt::format("up to {}", *limits.open_files));
  }
  return warn(
      "open files", fmt::format("up to {}", *limits.open_files),
      "LimitNOFILE=65536 in the unit, or ulimit -n 65536: each trainer and peer takes some");
}

Finding memory_files(const MemoryFacts& memory) {
  if (memory.memfd_fault.empty()) return ok("memory files", "sealed ones can be made");
  return fail("memory files", printable(memory.memfd_fault),
              "allow memfd_create and fcntl(F_ADD_SEALS) in the container's seccomp profile");
}

Finding shm(const MemoryFacts& memory) {
  if (!memory.shm_bytes) return skip("/dev/shm", "is not there; gradring does not need it");
  const std::string size = format_bytes(*memory.shm_bytes);
  if (*memory.shm_bytes > kShmOfContainers) return ok("/dev/shm", size);
  return warn("/dev/shm", size + ": gradring does not need it, loaders of data do",
              "docker run --shm-size=8g, or an emptyDir of medium Memory on /dev/shm");
}

Finding huge_pages(const MemoryFacts& memory) {
  if (!memory.huge_pages) return skip("huge pages", "cannot be read");
  return ok("huge pages", fmt::format("{} reserved; none are needed", *memory.huge_pages));
}

Finding container_memory(const MemoryFacts& memory) {
  // Half of this host's memory is what segment-limit takes for granted.
  if (!memory.cgroup_bytes) return ok("container memory", "no limit");
  const std::string limit = format_bytes(*memory.cgroup_bytes);
  if (!memory.total_bytes || *memory.cgroup_bytes >= *memory.total_bytes / 2) {
    return ok("container memory", limit);
  }
  return warn("container memory",
              fmt::format("{} of this machine's {}: trainers' segments count as the daemon's",
                          limit, format_bytes(*memory.total_bytes)),
              "raise MemoryMax= or the container's limit, or set segment-limit below it");
}

Finding container_processors(const MemoryFacts& memory) {
  if (!memory.cgroup_processors) {
    return ok("processors", fmt::format("{}, no quota", memory.processors));
  }
  const std::string found =
      fmt::format("a quota of {:.2f} of {}", *memory.cgroup_processors, memory.processors);
  // The control and the data thread each need one while gradients flow.
  if (*memory.cgroup_processors >= 2) return ok("processors", found);
  return warn("processors", found + ": the daemon is stopped in the middle of a slice",
              "give it 2 processors or more: CPUQuota=, or the container's cpu limit");
}

Finding seccomp(const LimitFacts& limits) {
  if (!limits.seccomp) return skip("seccomp", "cannot be read");
  if (*limits.seccomp == 0) return ok("seccomp", "no filter");
  return ok("seccomp", "a filter holds; see memory files for whether it lets us work");
}

Finding folder(const FolderFacts& folder) {
  if (!folder.there) {
    return fail("runtime folder", fmt::format("{} is not there", printable(folder.path)),
                "start gradringd, or name its folder: --runtime-dir, GRADRING_RUNTIME_DIR");
  }
  const std::string found =
      fmt::format("{}, mode {:04o}, of uid {}", printable(folder.path), folder.mode, folder.owner);
  constexpr uint32_t kOthersWrite = 0002;
  if ((folder.mode & kOthersWrite) != 0) {
    return fail("runtime folder", found + ": anybody may put sockets of his own there",
                fmt::format("chmod 0755 {}", printable(folder.path)));
  }
  if (folder.daemon_uid && folder.owner != *folder.daemon_uid) {
    return warn("runtime folder",
                fmt::format("{}, the daemon is uid {}", found, *folder.daemon_uid),
                fmt::format("chown {} {}", *folder.daemon_uid, printable(folder.path)));
  }
  return ok("runtime folder", found);
}

}  // namespace

Findings check_limits(const Facts& facts) {
  return {memlock(facts),
          open_files(facts.limits),
          memory_files(facts.memory),
          shm(facts.memory),
          huge_pages(facts.memory),
          container_memory(facts.memory),
          container_processors(facts.memory),
          seccomp(facts.limits),
          folder(facts.folder)};
}

}  // namespace gradring::tools::doctor
