#include "tests/transport/conformance.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstring>

namespace gradring::transport::conformance {

Events::Landing Recorder::on_header(std::span<const std::byte> header, size_t payload_bytes) {
  EXPECT_EQ(header.size(), kFrameBytes);
  ++headers;
  if (discard && payload_bytes != 0) return {};
  const uint64_t cookie = next_cookie_++;
  std::vector<std::byte>& landing = open[cookie];
  landing.resize(payload_bytes);
  return {landing.data(), cookie};
}

void Recorder::on_message(std::span<const std::byte> header, uint64_t cookie) {
  ASSERT_EQ(open.count(cookie), 1u) << "told of a message that was not announced, or twice";
  ASSERT_EQ(header.size(), kFrameBytes);
  Message message;
  std::memcpy(message.header.data(), header.data(), kFrameBytes);
  message.payload = std::move(open.at(cookie));
  open.erase(cookie);
  ++received;
  if (then) then(message);
  if (keep) messages.push_back(std::move(message));
}

void Recorder::on_aborted(uint64_t cookie) {
  ASSERT_EQ(open.erase(cookie), 1u) << "aborted what was not under way, or twice";
  ++aborted;
}

void Recorder::on_sent(PeerId peer, uint64_t token, bool ok) {
  EXPECT_NE(token, 0u) << "a send without a token is not reported";
  const bool first = sent.try_emplace({peer, token}, ok).second;
  EXPECT_TRUE(first) << "send " << token << " to peer " << peer << " ended twice";
}

void Recorder::on_lost(PeerId peer, const std::string& why) {
  EXPECT_FALSE(why.empty());
  lost.push_back(peer);
}

size_t Recorder::sent_ok() const {
  return std::count_if(sent.begin(), sent.end(), [](const auto& entry) { return entry.second; });
}

FrameBytes header_of(uint64_t number) {
  FrameBytes header;
  for (size_t i = 0; i < kFrameBytes; ++i) header[i] = static_cast<std::byte>(number * 31 + i);
  std::memcpy(header.data(), &number, sizeof number);
  return header;
}

uint64_t number_of(const FrameBytes& header) {
  uint64_t number = 0;
  std::memcpy(&number, header.data(), sizeof number);
  EXPECT_EQ(header, header_of(number)) << "the header was damaged";
  return number;
}

std::vector<std::byte> pattern(size_t bytes, uint64_t seed) {
  std::vector<std::byte> data(bytes);
  uint64_t state = seed * 2654435761u + 1;
  for (std::byte& byte : data) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return data;
}

bool pump(const std::vector<Node*>& nodes, const std::function<bool()>& done,
          std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    int work = 0;
    for (Node* node : nodes) work += node->turn();
    if (work == 0) sched_yield();
  }
  return true;
}

void idle(const std::vector<Node*>& nodes, std::chrono::milliseconds time) {
  pump(
      nodes, [] { return false; }, time);
}

}  // namespace gradring::transport::conformance
