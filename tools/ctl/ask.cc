#include "tools/ctl/ask.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <zmq.hpp>

#include "proto/version.h"
#include "tools/common/text.h"

namespace gradring::tools {
namespace {

// While an answer is waited for.
constexpr std::chrono::milliseconds kKnockEvery{1000};
constexpr std::chrono::milliseconds kLastWords{100};

tl::unexpected<Status> refuse(Code code, std::string message) {
  return tl::unexpected(Status(code, std::move(message)));
}

std::string how_to_start(const std::string& runtime_dir) {
  return fmt::format("start one with: gradringd --runtime-dir {}", runtime_dir);
}

// ZeroMQ would wait for a daemon for ever and would not say why it cannot connect, so that is found
// out with a plain socket first.
Status knock(const std::string& runtime_dir, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} is longer than the {} characters a socket's path may have; use a "
                              "shorter --runtime-dir",
                              path, sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  if (access(path.c_str(), R_OK | W_OK) != 0) {
    const int error = errno;
    if (error == EACCES) {
      return Status(Code::kUnavailable,
                    fmt::format("uid {} may not use {}: ask for membership of the socket's group "
                                "(ls -l {} names it)",
                                geteuid(), path, runtime_dir));
    }
    return Status(Code::kUnavailable, fmt::format("no gradringd at {}: {}; {}", path,
                                                  std::strerror(error), how_to_start(runtime_dir)));
  }
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return Status(Code::kInternal, fmt::format("socket: {}", std::strerror(errno)));
  const bool refused =
      connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 && errno != EAGAIN;
  const int error = errno;
  close(fd);
  if (!refused) return Status();
  return Status(Code::kUnavailable,
                fmt::format("nobody listens at {} ({}): the daemon has ended; {}", path,
                            std::strerror(error), how_to_start(runtime_dir)));
}

Reply judge(const wire::DaemonMessage& message, const std::string& path) {
  if (message.has_refused()) {
    return refuse(static_cast<Code>(message.refused().code()),
                  printable(message.refused().message()));
  }
  if (!message.has_reply()) {
    return refuse(Code::kIncompatible,
                  fmt::format("the daemon at {} did not answer the question; is it of another "
                              "version than this gradringctl {}?",
                              path, kProductVersion));
  }
  return message.reply();
}

// Names come from the command line, where they may be any bytes; a message with such is malformed.
Status fault_of(const wire::Query& query) {
  if (!is_utf8(query.node())) {
    return {Code::kInvalidArgument,
            fmt::format("no node is called \"{}\", which is not UTF-8: \"gradringctl peers\" has "
                        "their names",
                        printable(query.node()))};
  }
  if (!is_utf8(query.job())) {
    return {Code::kInvalidArgument,
            fmt::format("no job is called \"{}\", which is not UTF-8: \"gradringctl jobs\" has "
                        "their names",
                        printable(query.job()))};
  }
  if (!is_utf8(query.setting().value())) {
    return {Code::kInvalidArgument,
            fmt::format("{} cannot be \"{}\", which is not UTF-8", query.setting().name(),
                        printable(query.setting().value()))};
  }
  return {};
}

}  // namespace

struct Questions::Parts {
  std::string runtime_dir;
  std::string path;
  zmq::context_t context{1};
  zmq::socket_t socket{context, zmq::socket_type::dealer};
  uint64_t next_request = 1;

  // An error: nothing more comes of this daemon.
  Status ask(std::span<const wire::Query> queries, std::chrono::milliseconds patience,
             std::vector<std::optional<Reply>>* replies);
  Status send(std::span<const wire::Query> queries);
  Status receive(uint64_t first, std::chrono::milliseconds patience,
                 std::vector<std::optional<Reply>>* replies);
  Status silence(std::chrono::milliseconds patience) const {
    return {Code::kDeadlineExceeded,
            fmt::format("the daemon at {} did not answer within {} s: is it stopped, or very busy? "
                        "Its log may say",
                        path, patience.count() / 1000)};
  }
};

Questions::Questions(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Questions::Questions(Questions&&) noexcept = default;
Questions::~Questions() = default;

tl::expected<Questions, Status> Questions::open(const std::string& runtime_dir) {
  auto parts = std::make_unique<Parts>();
  parts->runtime_dir = runtime_dir;
  parts->path = runtime_dir + "/control.sock";
  if (Status status = knock(runtime_dir, parts->path); !status.ok()) return tl::unexpected(status);
  try {
    parts->socket.set(zmq::sockopt::linger, 0);
    parts->socket.set(zmq::sockopt::sndtimeo, static_cast<int>(kPatience.count()));
    parts->socket.connect("ipc://" + parts->path);
  } catch (const zmq::error_t& error) {
    return refuse(Code::kInternal, fmt::format("talking to {}: {}", parts->path, error.what()));
  }
  return Questions(std::move(parts));
}

Status Questions::Parts::send(std::span<const wire::Query> queries) {
  for (const wire::Query& query : queries) {
    wire::ClientMessage message;
    message.set_protocol(kClientProtocols.newest);
    message.set_oldest_protocol(kClientProtocols.oldest);
    message.set_request(next_request++);
    *message.mutable_query() = query;
    const std::string bytes = message.SerializeAsString();
    if (!socket.send(zmq::buffer(bytes), zmq::send_flags::none).has_value())
      return silence(kPatience);
  }
  return {};
}

// Until each has an answer, the time is over, or nobody is there any more: of that ZeroMQ says
// nothing, and what a daemon said last may come in after its end.
Status Questions::Parts::receive(uint64_t first, std::chrono::milliseconds patience,
                                 std::vector<std::optional<Reply>>* replies) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  Status gone;
  for (size_t missing = replies->size(); missing > 0;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    const auto wait = std::min(left, gone.ok() ? kKnockEvery : kLastWords);
    // 0 would be "look once", -1 "for ever".
    socket.set(zmq::sockopt::rcvtimeo, static_cast<int>(std::max<int64_t>(wait.count(), 1)));
    zmq::message_t frame;
    if (!socket.recv(frame).has_value()) {
      if (!gone.ok() || wait == left) return gone;
      gone = knock(runtime_dir, path);
      continue;
    }
    wire::DaemonMessage message;
    if (!message.ParseFromArray(frame.data(), static_cast<int>(frame.size()))) {
      return {Code::kIncompatible,
              fmt::format("the program at {} answers with something that is not of gradring's "
                          "protocol {}",
                          path, describe(kClientProtocols))};
    }
    if (message.request() == 0 && message.has_refused()) {  // whatever it was that was asked
      return {static_cast<Code>(message.refused().code()), printable(message.refused().message())};
    }
    const uint64_t index = message.request() - first;
    if (index >= replies->size() || (*replies)[index]) continue;  // late, of an earlier question
    (*replies)[index] = judge(message, path);
    --missing;
  }
  return {};
}

Status Questions::Parts::ask(std::span<const wire::Query> queries,
                             std::chrono::milliseconds patience,
                             std::vector<std::optional<Reply>>* replies) {
  const uint64_t first = next_request;
  try {
    Status fault = send(queries);
    if (fault.ok()) fault = receive(first, patience, replies);
    if (!fault.ok()) return fault;
  } catch (const zmq::error_t& error) {
    return {Code::kInternal, fmt::format("talking to {}: {}", path, error.what())};
  }
  const bool answers = std::ranges::any_of(*replies, &std::optional<Reply>::has_value);
  return answers ? Status() : silence(patience);
}

std::vector<Reply> Questions::ask(const std::vector<wire::Query>& queries,
                                  std::chrono::milliseconds patience) {
  std::vector<Reply> answers;
  Status fault;
  for (const wire::Query& query : queries) {
    if (fault.ok()) fault = fault_of(query);
  }
  while (answers.size() < queries.size()) {
    const auto rest = std::span(queries).subspan(answers.size());
    const auto some = rest.first(std::min(rest.size(), kAtOnce));
    std::vector<std::optional<Reply>> replies(some.size());
    if (fault.ok()) fault = parts_->ask(some, patience, &replies);
    const Status none = fault.ok() ? parts_->silence(patience) : fault;
    for (auto& reply : replies) {
      answers.push_back(reply ? std::move(*reply) : Reply(tl::unexpected(none)));
    }
  }
  return answers;
}

Reply ask(const Context& context, wire::Query query) {
  auto questions = Questions::open(context.runtime_dir);
  if (!questions) return tl::unexpected(questions.error());
  query.set_node(context.node);
  return questions->ask(query);
}

bool can_be_asked(const wire::PeerReport& peer) {
  return peer.state() == "up" || peer.state() == "suspect";
}

std::optional<std::string> why_not_asked(const wire::PeerReport& peer) {
  const std::string& state = peer.state();
  if (state != "lost" && state != "away" && state != "stopped") return std::nullopt;
  return fmt::format("node {} is {} and was not asked: {}", printable(peer.node()), state,
                     printable(peer.reason()));
}

tl::expected<std::vector<std::string>, Status> all_nodes(Questions& questions,
                                                         std::vector<std::string>* missing) {
  wire::Query status;
  status.set_what(wire::Query::STATUS);
  wire::Query peers;
  peers.set_what(wire::Query::PEERS);
  const auto about = questions.ask({status, peers});
  for (const Reply& reply : about) {
    if (!reply) return tl::unexpected(reply.error());
  }
  std::vector<std::string> nodes = {about[0]->status().node()};
  for (const wire::PeerReport& peer : about[1]->peers().peers()) {
    if (can_be_asked(peer)) nodes.push_back(peer.node());
    const auto why = why_not_asked(peer);
    if (why && missing != nullptr) missing->push_back(*why);
  }
  return nodes;
}

std::vector<NodeReply> ask_nodes(Questions& questions, const std::vector<std::string>& nodes,
                                 const wire::Query& query) {
  std::vector<wire::Query> queries(nodes.size(), query);
  for (size_t i = 1; i < nodes.size(); ++i) queries[i].set_node(nodes[i]);
  std::vector<Reply> replies = questions.ask(queries);
  std::vector<NodeReply> all;
  for (size_t i = 0; i < nodes.size(); ++i) all.push_back({nodes[i], std::move(replies[i])});
  return all;
}

tl::expected<std::vector<NodeReply>, Status> ask_all_nodes(Questions& questions,
                                                           const wire::Query& query,
                                                           std::vector<std::string>* missing) {
  const auto nodes = all_nodes(questions, missing);
  if (!nodes) return tl::unexpected(nodes.error());
  return ask_nodes(questions, *nodes, query);
}

}  // namespace gradring::tools
