#pragma once

#include <cstdint>

// What a program asks of the C++ runtime and of pthreads, counted: whoever links counted.cc has
// operator new, operator delete and pthread_mutex_lock replaced. Not together with sanitizers,
// which replace them as well.
namespace gradring::counted {

struct Counts {
  uint64_t allocations = 0;
  uint64_t locks = 0;  // asked for by the program's own code, not by libraries
};

// Of all threads but those that are left out.
Counts so_far();
void leave_out_this_thread();

}  // namespace gradring::counted
