#pragma once

#include <cstdint>
#include <string>

// What one connection may send before a message of it is taken: libzmq bounds the parts of a
// message, and keeps as many as come. More, and it is closed: recv() of this process says that it
// has hung up. Any thread.
namespace gradring::daemon {

// By which it came. At control.sock it may send so much from each message to the next, at `listen`
// less and before its first message alone: peers are trusted.
enum class Entrance { kControlSocket, kListen };
inline constexpr uint64_t kUnheardMost = 16 << 20;
void bound_unheard(int guest, Entrance entrance);

// A message of it was taken, at control.sock or at `listen`.
void heard_from(int guest);
void has_greeted(int guest);

// How many were closed so, and what to tell people of the last of them.
uint64_t endless_messages();
std::string last_endless_message();

}  // namespace gradring::daemon
