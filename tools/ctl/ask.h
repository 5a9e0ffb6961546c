#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "client.pb.h"
#include "proto/status.h"
#include "tools/ctl/command.h"

namespace gradring::tools {

using Reply = tl::expected<wire::QueryReply, Status>;

// A connection to the daemon in a runtime directory. Not thread-safe.
class Questions {
 public:
  // Errors: UNAVAILABLE if there is no daemon or its socket may not be used, INVALID_ARGUMENT.
  static tl::expected<Questions, Status> open(const std::string& runtime_dir);
  Questions(Questions&&) noexcept;
  ~Questions();

  static constexpr std::chrono::milliseconds kPatience{3000};

  // A daemon passes 256 questions on at a time, of all who ask.
  static constexpr size_t kAtOnce = 128;

  // The answers in the order of the questions, those of each kAtOnce within 3 s, or as long as what
  // is asked takes: what did not come by then is DEADLINE_EXCEEDED, or UNAVAILABLE once nobody
  // listens any more. Other errors: what the daemon refuses with, INCOMPATIBLE.
  std::vector<Reply> ask(const std::vector<wire::Query>& queries,
                         std::chrono::milliseconds patience = kPatience);
  Reply ask(const wire::Query& query) { return ask(std::vector{query}).front(); }

 private:
  struct Parts;
  explicit Questions(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// One question, to the node that the context names.
Reply ask(const Context& context, wire::Query query);

// Whether a daemon can pass a question on to this peer: also to one that says nothing just now,
// whose answer is then why it has none.
bool can_be_asked(const wire::PeerReport& peer);
// What to say of a peer that was connected and is not; nothing of any other.
std::optional<std::string> why_not_asked(const wire::PeerReport& peer);

// This daemon's node, then the peers that can be asked. `missing`: what to say of those that cannot
// be any more.
tl::expected<std::vector<std::string>, Status> all_nodes(
    Questions& questions, std::vector<std::string>* missing = nullptr);

struct NodeReply {
  std::string node;
  Reply reply;
};
// Each node's answer to a question; the first of them is this daemon's.
std::vector<NodeReply> ask_nodes(Questions& questions, const std::vector<std::string>& nodes,
                                 const wire::Query& query);
tl::expected<std::vector<NodeReply>, Status> ask_all_nodes(
    Questions& questions, const wire::Query& query, std::vector<std::string>* missing = nullptr);

}  // namespace gradring::tools
