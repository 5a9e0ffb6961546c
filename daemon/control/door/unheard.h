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

// All connections of one user to control.sock together: libzmq keeps what they said also when they
// are gone, until it is taken. Root and the daemon's own user are bounded by each connection alone.
inline constexpr uint64_t kUnheardOfUserMost = 256 << 20;

// A message of it was taken, at control.sock or at `listen`; `bytes`, as they came, of this user's.
void heard_from(int guest, uint32_t uid, uint64_t bytes);
void has_greeted(int guest);
// No message waits at control.sock.
void heard_all();

// How many were closed so, and what to tell people of the last of them.
uint64_t endless_messages();
std::string last_endless_message();

}  // namespace gradring::daemon
