#pragma once

#include <cstdint>
#include <string>

// Whoever connects takes a descriptor, as does the memory that a trainer asks for, and the last
// ones are for the daemon itself: for peers, for its files.
namespace gradring::daemon {

// True if the daemon can do with what is left besides `newest`, a descriptor that it has just got:
// of somebody who connected, or of memory for a trainer. Any thread.
bool leaves_enough_files(int newest);

// True if so many descriptors are no more than half of what this process may have, which is the
// most for one user; root, and the daemon's own user, have no share. Any thread.
bool is_within_share(uint32_t uid, uint64_t descriptors);

// "gradringd has no file descriptors left for ..."
std::string no_files_left(const char* for_what = "whoever connects");

// From now on accept4() of this process closes a connection to `listener` at once for which it
// leaves not enough, or of a user who has half of all, and fails as if the stranger had gone again.
// For control.sock, whose connections libzmq accepts: 4.3 ends the process where there is no
// descriptor (ipc_listener.cpp takes EMFILE for a bug). One listener at a time; any thread.
void guard_listener(int listener);

// Likewise of all who connect to this port by TCP, when these have half of all together. What is
// left is for whoever is on the node. Any thread.
void guard_peers_port(uint16_t port);

// Logs that somebody was turned away so since the last call, or said too much (unheard.h). Control
// thread.
void tell_turned_away();

}  // namespace gradring::daemon
