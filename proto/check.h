#pragma once

#include <cstdio>
#include <cstdlib>

// A bug in our own reasoning stops the process, in production too: going on would hand out wrong
// sums.
#define GRADRING_CHECK(condition, what)                                                \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      std::fprintf(stderr, "%s:%d: gradring bug: %s (%s)\n", __FILE__, __LINE__, what, \
                   #condition);                                                        \
      std::abort();                                                                    \
    }                                                                                  \
  } while (false)
