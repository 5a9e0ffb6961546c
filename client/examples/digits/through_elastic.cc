#include "client/examples/digits/through_elastic.h"

#include <cstring>

namespace digits {
namespace {

template <class Copy>
void each_piece(const State& state, const Copy& copy) {
  copy(std::as_writable_bytes(state.progress));
  for (const std::span<float> piece : state.rest) copy(std::as_writable_bytes(piece));
}

}  // namespace

ThroughElastic::ThroughElastic(const Model& model, const gradring_options& options)
    : ThroughGradring(model, options), view_(job_.view()) {}

void ThroughElastic::begin_step(const State& state) {
  do {
    view_ = job_.join_point();
    // Where somebody came in, all take part: nobody else knows whom it is brought to.
  } while (view_.grew != grew_ && !share(state));
  grew_ = view_.grew;
}

// False if the one that has the state was lost before all had it: the next join point says who is
// the oldest now.
bool ThroughElastic::share(const State& state) {
  if (state_.size() == 0) {
    size_t bytes = 0;
    each_piece(state, [&](std::span<std::byte> piece) { bytes += piece.size(); });
    state_ = job_.allocate<uint8_t>(bytes);
  }
  uint8_t* at = state_.data();
  each_piece(state, [&](std::span<std::byte> piece) {
    std::memcpy(at, piece.data(), piece.size());
    at += piece.size();
  });
  try {
    job_.broadcast(state_, view_.oldest);
  } catch (const gradring::Error& error) {
    const uint32_t cause = error.result().cause;
    // Refused, where the daemon knew of the loss before this rank had submitted.
    if (cause == GRADRING_CAUSE_ROOT_LOST || cause == GRADRING_CAUSE_REFUSED) return false;
    throw;
  }
  at = state_.data();
  each_piece(state, [&](std::span<std::byte> piece) {
    std::memcpy(piece.data(), at, piece.size());
    at += piece.size();
  });
  return true;
}

}  // namespace digits
