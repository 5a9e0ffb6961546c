#pragma once

#include <gradring/gradring.h>

#include <exception>
#include <memory>
#include <new>

#include "client/src/api/error.h"
#include "client/src/communicator/communicator.h"

struct gradring_comm {
  std::unique_ptr<gradring::client::Communicator> body;
};

// What the calls of the C interface have in common.
namespace gradring::client {

// Runs what may throw, which is only for lack of memory.
template <class Body>
gradring_code guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return remember(GRADRING_ERR_EXHAUSTED, "out of memory");
  } catch (const std::exception& error) {
    return remember(GRADRING_ERR_INTERNAL, error.what());
  }
}

// Likewise for a call on a communicator, which is not closed before it returns.
template <class Body>
gradring_code on(gradring_comm* comm, Body body) noexcept {
  if (comm == nullptr) return remember(GRADRING_ERR_INVALID, "comm is NULL");
  if (comm->body->forked()) {
    return remember(
        GRADRING_ERR_FORKED,
        "this process was forked from the one that opened the communicator; open another "
        "one here");
  }
  return guarded([&] {
    Communicator::Inside inside(*comm->body);
    inside.lock().unlock();
    return body(*comm->body);
  });
}

}  // namespace gradring::client
