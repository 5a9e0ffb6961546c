#include "daemon/control/door/zap.h"

#include <spdlog/spdlog.h>

#include <array>
#include <utility>

namespace gradring::daemon {
namespace {

// Frames of a request: version, request id, domain, address, identity, mechanism, credentials.
enum : size_t {
  kVersion,
  kRequest,
  kDomain,
  kAddress,
  kIdentity,
  kMechanism,
  kCredentials,
  kFrames
};

constexpr size_t kKeyBytes = 32;

std::string as_text(const std::string& key) {
  std::array<char, 41> text{};
  zmq_z85_encode(text.data(), reinterpret_cast<const uint8_t*>(key.data()), key.size());
  return text.data();
}

}  // namespace

KeyGuard::KeyGuard(zmq::context_t* context, std::vector<AllowedKey> keys)
    : keys_(std::move(keys)), socket_(*context, ZMQ_REP) {
  socket_.set(zmq::sockopt::linger, 0);
  socket_.bind("inproc://zeromq.zap.01");  // the name is libzmq's
}

const AllowedKey* KeyGuard::by_address(const std::string& address) const {
  for (const AllowedKey& key : keys_) {
    if (key.address == address) return &key;
  }
  return nullptr;
}

const AllowedKey* KeyGuard::by_node(const std::string& node) const {
  for (const AllowedKey& key : keys_) {
    if (key.node == node) return &key;
  }
  return nullptr;
}

const AllowedKey* KeyGuard::by_key(const std::string& public_key) const {
  for (const AllowedKey& key : keys_) {
    if (key.public_key == public_key) return &key;
  }
  return nullptr;
}

std::set<std::string> KeyGuard::set_keys(std::vector<AllowedKey> keys) {
  std::swap(keys_, keys);
  std::set<std::string> gone;
  for (const AllowedKey& old : keys) {
    const AllowedKey* const now = by_key(old.public_key);
    if (now == nullptr || now->node != old.node) gone.insert(old.node);
  }
  return gone;
}

// Somebody with a wrong key tries again every other second; a person wants to read of it now and
// then.
void KeyGuard::tell_of_stranger(const std::string& address, core::Time now) {
  constexpr core::Time kAgain = 600 * core::kSecond;
  constexpr size_t kAddressesMax = 1024;
  const auto told = told_.find(address);
  if (told != told_.end() && now - told->second < kAgain) return;
  if (told_.size() >= kAddressesMax) told_.clear();
  told_[address] = now;
  spdlog::warn("refused a peer at {}: its key is not in allowed-keys", address);
}

int KeyGuard::do_work(core::Time now) {
  int answered = 0;
  while (true) {
    std::vector<std::string> frames;
    zmq::message_t frame;
    do {
      if (!socket_.recv(frame, zmq::recv_flags::dontwait)) return answered;
      frames.push_back(frame.to_string());
    } while (frame.more());
    ++answered;
    frames.resize(kFrames);

    std::string key;
    if (frames[kMechanism] == "CURVE" && frames[kCredentials].size() == kKeyBytes) {
      key = as_text(frames[kCredentials]);
    }
    const bool allowed = by_key(key) != nullptr;
    if (!allowed) tell_of_stranger(frames[kAddress], now);
    const std::array<std::string, 6> answer = {"1.0",
                                               frames[kRequest],
                                               allowed ? "200" : "400",
                                               allowed ? "OK" : "key not allowed",
                                               allowed ? key : "",
                                               ""};
    for (size_t i = 0; i < answer.size(); ++i) {
      socket_.send(zmq::buffer(answer[i]),
                   i + 1 < answer.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }
}

}  // namespace gradring::daemon
