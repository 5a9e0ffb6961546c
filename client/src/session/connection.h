#pragma once

#include <string>

#include "client/src/session/attach.h"
#include "client/src/session/control.h"
#include "proto/status.h"
#include "proto/verdict.h"
#include "proto/wire.h"

namespace gradring::client {

// Where the daemon is, whichever life of it.
struct DaemonPlace {
  std::string runtime_dir;
  std::string node;
};

// Both channels to one life of the daemon, with our session open on them.
struct Connection {
  AttachSocket attach;
  ControlSocket control;
  wire::AttachWelcome welcome;
};

// Why there is no connection, or none any more. kPeerLost: the daemon is not there, or hung up.
// kRefused: it does not want us, in its own words. kProtocol: what it sent makes no sense.
struct Ending {
  Cause cause = Cause::kNone;
  Status why;
};

// Of a daemon that hung up for good.
Status went_away(const DaemonPlace& place);

}  // namespace gradring::client
