#pragma once

namespace gradring::device {

// Each measures and says what it found; it throws std::runtime_error where it cannot.

// What kernels and copies of a daemon take while a trainer's kernels fill the GPU, and what they
// cost it. Under MPS, where a control daemon of it answers, that is another answer.
void ask_beside_a_trainer();
// What each thing that a daemon may do for an op takes while the trainer's stream waits for it, and
// nothing else is on the GPU; and the op as a whole.
void ask_turns();
// What a context takes of the GPU's memory, and what makes it smaller.
void ask_context();
// What it costs to open another process's memory and events, and to order streams by those.
void ask_import();
// Whether memory of another user's process may be opened, and what is left of a dead one's.
void ask_owners();
// What cudaHostRegister takes for a memfd, and how fast copies to and from it are, one way and both
// at once.
void ask_pinned();
// What the words take by which streams and the host are put into an order.
void ask_words();
// Which calls of the driver wait until streams have come to rest.
void ask_what_waits();
// What NCCL does with one rank, and with two on one GPU.
void ask_nccl();

// The other process of each.
void be_a_trainer();
void be_a_turner();
void be_a_context();
void be_an_exporter();
void be_an_owner();

}  // namespace gradring::device
