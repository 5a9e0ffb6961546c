// A process that may have no more threads, because it has no room for their stacks.
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/client/trainer.h"

namespace gradring::test {
namespace {

void* for_ever(void*) {
  while (true) ::pause();
}

// Until the other end of the pipe is closed.
void* for_a_while(void* gate) {
  char none = 0;
  [[maybe_unused]] const ssize_t closed = ::read(static_cast<int*>(gate)[0], &none, 1);
  return nullptr;
}

// Leaves room for so many threads, which take the stacks of others that have ended.
void leave_room_for(int threads) {
  pthread_attr_t attributes{};
  ::pthread_attr_init(&attributes);
  size_t stack = 0;
  ::pthread_attr_getstacksize(&attributes, &stack);
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + 4 * stack + stack / 2;
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_AS, &limit);
  std::vector<pthread_t> ending(static_cast<size_t>(threads));
  int gate[2];
  if (::pipe(gate) != 0) ::_exit(100);
  for (pthread_t& thread : ending) {
    if (::pthread_create(&thread, nullptr, for_a_while, gate) != 0) ::_exit(101);
  }
  for (pthread_t more; ::pthread_create(&more, nullptr, for_ever, nullptr) == 0;) {
  }
  ::close(gate[1]);
  for (const pthread_t thread : ending) ::pthread_join(thread, nullptr);
}

// libzmq itself would end the process.
TEST(Open, WithoutThreadsIsRefused) {
  FakeDaemon daemon;
  for (const int threads : {0, 1, 2}) {
    const pid_t child = ::fork();
    if (child == 0) {
      leave_room_for(threads);
      const gradring_options options = options_for(daemon.runtime_dir(), 0, 1);
      gradring_comm* comm = nullptr;
      const gradring_code code = gradring_open(&options, &comm);
      const std::string words = gradring_last_error();
      if (threads < 2 && words.find("threads") == std::string::npos) ::_exit(102);
      ::_exit(code);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "room for " << threads << ": signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), threads < 2 ? GRADRING_ERR_EXHAUSTED : GRADRING_OK) << threads;
  }
}

}  // namespace
}  // namespace gradring::test
