#pragma once

#include <zmq.hpp>

namespace gradring::daemon {

// A ROUTER knows whoever connects by a routing id. libzmq 4.3.4 lets strangers choose theirs, and
// ends the process when the next number that it gives itself is one that was chosen. So ours choose
// all of them.
zmq::socket_t make_router(zmq::context_t* context);

// From now on `router` asks nobody for a name. After its last bind, by the thread that has it.
void give_all_names(zmq::socket_t* router);

}  // namespace gradring::daemon
