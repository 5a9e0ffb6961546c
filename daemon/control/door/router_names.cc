#include "daemon/control/door/router_names.h"

#include <cstdlib>

#include "daemon/control/sessions/sessions.h"

namespace gradring::daemon {

// libzmq numbers from rand(), which it leaves without a seed: the same numbers in every process.
zmq::socket_t make_router(zmq::context_t* context) {
  srand(static_cast<unsigned>(random_u64()));
  return {*context, ZMQ_ROUTER};
}

// A raw ROUTER gives all names. What was bound before it became raw still speaks ZMTP, and the name
// that a client has sent is skipped as after a reconnect (router.cpp, xrecv). Off again, an empty
// message is a message, and does not end a connection; the names stay (identify_peer).
void give_all_names(zmq::socket_t* router) {
  for (const int raw : {1, 0}) {
    if (zmq_setsockopt(router->handle(), ZMQ_ROUTER_RAW, &raw, sizeof raw) != 0) {
      throw zmq::error_t();
    }
  }
}

}  // namespace gradring::daemon
