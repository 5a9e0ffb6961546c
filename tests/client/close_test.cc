// A communicator is closed while another thread is in the middle of a call.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <thread>

#include "tests/client/trainer.h"

namespace {

// The thread that sets it stops where it unlocks a mutex the next time.
thread_local bool stop_here = false;
std::atomic<bool> has_stopped = false;
std::atomic<bool> may_go_on = false;

}  // namespace

// The library's, too.
extern "C" int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  using Unlock = int (*)(pthread_mutex_t*);
  static const auto real = reinterpret_cast<Unlock>(::dlsym(RTLD_NEXT, "pthread_mutex_unlock"));
  const int result = real(mutex);
  if (stop_here) {
    stop_here = false;
    has_stopped = true;
    while (!may_go_on) std::this_thread::yield();
  }
  return result;
}

namespace gradring::test {
namespace {

TEST(Close, WaitsForACallThatHasNothingLockedJustNow) {
  FakeDaemon daemon;
  daemon.set([](Script& script) { script.complete = false; });
  Comm comm = open(daemon);
  const gradring_request request = submit(comm, barrier_op());
  gradring_comm* const closing = comm.release();
  std::thread waiter([&] {
    stop_here = true;
    EXPECT_EQ(gradring_wait(closing, request, -1, nullptr), GRADRING_ERR_UNAVAILABLE);
  });
  while (!has_stopped) std::this_thread::yield();
  std::atomic<bool> closed = false;
  std::thread closer([&] {
    gradring_close(closing);
    closed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(closed);
  may_go_on = true;
  closer.join();
  waiter.join();
}

}  // namespace
}  // namespace gradring::test
