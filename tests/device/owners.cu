// Whose memory may be opened, and what becomes of it when its owner dies.
#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "tests/device/answers.h"
#include "tests/device/gpu_things.h"
#include "tests/device/other_process.h"
#include "tests/device/questions.h"

namespace gradring::device {
namespace {

constexpr size_t kBytes = size_t{2} << 20;
// Two users that own nothing here; neither is root.
constexpr uid_t kTrainersUser = 65533;
constexpr uid_t kDaemonsUser = 65532;

struct Order {
  enum class What : char { kGive, kDie, kOpen, kRead, kWork } what;
  uid_t become = 0;  // before it first uses CUDA; 0: as it is
  cudaIpcMemHandle_t handle{};
};
struct Report {
  cudaError_t result = cudaSuccess;
  cudaIpcMemHandle_t handle{};
};

Report order(OtherProcess& process, const Order& what) {
  Report report;
  process.tell(&what, sizeof what);
  process.hear(&report, sizeof report);
  return report;
}

std::string in_words(cudaError_t result) {
  return result == cudaSuccess ? "yes" : std::string("no: ") + cudaGetErrorString(result);
}

void ask_between(const std::string& text, uid_t trainer, uid_t daemon) {
  OtherProcess owner("owner"), other("owner");
  const Report given = order(owner, {Order::What::kGive, trainer});
  check(given.result, "a process that shall give memory away");
  Report report = order(other, {Order::What::kOpen, daemon, given.handle});
  if (report.result == cudaSuccess) report = order(other, {Order::What::kRead});
  say_in_words(text, in_words(report.result));
}

void ask_of_the_dead() {
  OtherProcess owner("owner"), other("owner");
  const Report given = order(owner, {Order::What::kGive});
  check(given.result, "a process that shall give memory away");
  check(order(other, {Order::What::kOpen, 0, given.handle}).result, "cudaIpcOpenMemHandle");
  const Order die{Order::What::kDie};
  owner.tell(&die, sizeof die);
  owner.wait();
  say_in_words("memory of a process that was killed can be read",
               in_words(order(other, {Order::What::kRead}).result));
  say_in_words("and then, whoever has it open can go on",
               in_words(order(other, {Order::What::kWork}).result));
}

cudaError_t read_all(const void* memory) {
  std::string host(kBytes, 0);
  return cudaMemcpy(host.data(), memory, kBytes, cudaMemcpyDeviceToHost);
}

cudaError_t work() {
  void* mine = nullptr;
  cudaError_t result = cudaMalloc(&mine, kBytes);
  if (result == cudaSuccess) result = cudaMemset(mine, 0, kBytes);
  if (result == cudaSuccess) result = read_all(mine);
  cudaFree(mine);
  return result;
}

void become(uid_t user) {
  if (user == 0) return;
  if (::setresgid(user, user, user) != 0 || ::setresuid(user, user, user) != 0) {
    throw std::runtime_error("cannot become another user");
  }
}

}  // namespace

void ask_owners() {
  if (::geteuid() == 0) {
    ask_between("root opens memory of another user's process", kTrainersUser, 0);
    ask_between("a user opens root's", 0, kDaemonsUser);
    ask_between("a user opens another user's", kTrainersUser, kDaemonsUser);
    ask_between("and his own", kTrainersUser, kTrainersUser);
  } else {
    say_in_words("memory of other users' processes", "not asked: that takes root");
  }
  ask_of_the_dead();
}

void be_an_owner() {
  void* memory = nullptr;
  Order now;
  while (hear_from_parent(&now, sizeof now)) {
    Report report;
    become(now.become);
    switch (now.what) {
      case Order::What::kGive:
        report.result = cudaMalloc(&memory, kBytes);
        if (report.result == cudaSuccess)
          report.result = cudaIpcGetMemHandle(&report.handle, memory);
        break;
      case Order::What::kDie:
        ::kill(::getpid(), SIGKILL);
        break;
      case Order::What::kOpen:
        report.result = cudaIpcOpenMemHandle(&memory, now.handle, cudaIpcMemLazyEnablePeerAccess);
        break;
      case Order::What::kRead:
        report.result = read_all(memory);
        break;
      case Order::What::kWork:
        report.result = work();
        break;
    }
    tell_parent(&report, sizeof report);
  }
}

}  // namespace gradring::device
