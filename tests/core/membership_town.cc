#include "tests/core/membership_town.h"

#include <algorithm>

#include "tests/core/membership_town_daemon.h"

namespace gradring::core {

JoinRequest trainer(uint32_t rank, uint32_t size) {
  JoinRequest request;
  request.job = "train";
  request.token = "t";
  request.rank = rank;
  request.size = size;
  request.local_rank = rank;
  request.policy = "fail";
  request.uid = 1000;
  return request;
}

JoinRequest elastic(uint32_t rank, uint32_t size) {
  JoinRequest request = trainer(rank, size);
  request.policy = "elastic min=1 max=8";
  return request;
}

std::string name_of(const JobMessage& message) {
  if (const auto* claims = std::get_if<Claims>(&message)) {
    std::string text = "Claims(";
    for (size_t i = 0; i < claims->ranks.size(); ++i) {
      text += (i == 0 ? "" : " ") + std::to_string(claims->ranks[i].rank);
    }
    return text + ")";
  }
  if (const auto* reject = std::get_if<Reject>(&message)) return "Reject(" + reject->reason + ")";
  if (std::holds_alternative<Propose>(message)) return "Propose";
  if (std::holds_alternative<Accept>(message)) return "Accept";
  if (std::holds_alternative<Commit>(message)) return "Commit";
  if (std::holds_alternative<JobFailed>(message)) return "JobFailed";
  if (std::holds_alternative<JobDone>(message)) return "JobDone";
  if (std::holds_alternative<Left>(message)) return "Left";
  if (const auto* m = std::get_if<Unwelcome>(&message)) return "Unwelcome(" + m->why + ")";
  if (std::holds_alternative<change::Prepare>(message)) return "change::Prepare";
  if (std::holds_alternative<change::Promise>(message)) return "change::Promise";
  if (std::holds_alternative<change::Accept>(message)) return "change::Accept";
  if (std::holds_alternative<change::Accepted>(message)) return "change::Accepted";
  if (std::holds_alternative<change::Commit>(message)) return "change::Commit";
  if (std::holds_alternative<change::Refuse>(message)) return "change::Refuse";
  return "change::Ask";
}

Town::Town(uint32_t nodes, bool connected, const MembershipOptions& options) : options_(options) {
  for (uint32_t i = 0; i < nodes; ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    daemons_[name] = std::make_unique<Daemon>(this, name, seed_++);
  }
  for (const std::string& a : this->nodes()) {
    for (const std::string& b : this->nodes()) {
      if (connected && a < b) connect(a, b);
    }
  }
}

Town::~Town() = default;

Membership& Town::at(const std::string& node) { return daemon(node).membership; }

std::vector<std::string> Town::nodes() const {
  std::vector<std::string> names;
  for (const auto& [name, daemon] : daemons_) names.push_back(name);
  return names;
}

void Town::connect(const std::string& a, const std::string& b) {
  link(a, b).clear();
  link(b, a).clear();
  connected_.insert({a, b});
  connected_.insert({b, a});
  at(a).peer_up(b);
  at(b).peer_up(a);
}

void Town::cut(const std::string& a, const std::string& b) {
  for (const auto& [node, lost] : {std::pair(a, b), std::pair(b, a)}) {
    link(lost, node).clear();
    notice_loss(node, lost);
  }
  link(a, b).clear();
  link(b, a).clear();
}

void Town::notice_loss(const std::string& node, const std::string& lost) {
  if (connected_.erase({node, lost}) == 0) return;
  link(lost, node).clear();
  at(node).peer_lost(lost, Cause::kPeerLost, "connection closed");
}

void Town::part(const std::string& a, const std::string& b) {
  for (const auto& [node, other] : {std::pair(a, b), std::pair(b, a)}) {
    connected_.erase({node, other});
    link(node, other).clear();
  }
  at(a).peer_away(b);
  at(b).peer_away(a);
}

void Town::crash(const std::string& node) {
  for (auto& [session, who] : trainers_) who.gone = who.gone || who.node == node;
  const std::vector<std::string> all = nodes();
  daemons_[node] = std::make_unique<Daemon>(this, node, seed_++);
  for (const std::string& other : all) {
    if (other == node) continue;
    link(node, other).clear();
    link(other, node).clear();
    connected_.erase({node, other});
  }
  for (const std::string& other : all) notice_loss(other, node);
}

SessionId Town::join(const std::string& node, JoinRequest request) {
  const std::optional<SessionId> session = try_join(node, std::move(request));
  EXPECT_TRUE(session.has_value()) << "was refused at once";
  return session.value_or(trainers_.size());
}

std::optional<SessionId> Town::try_join(const std::string& node, JoinRequest request) {
  const SessionId session = trainers_.size() + 1;
  request.session = session;
  request.pid = 1000 + static_cast<int64_t>(session);
  trainers_[session] = {node, request, {}, {}, {}, false};
  if (at(node).join(request, now).ok()) return session;
  trainers_[session].gone = true;
  return std::nullopt;
}

Status Town::refused_join(const std::string& node, JoinRequest request) {
  if (request.session == 0) request.session = trainers_.size() + 1;
  request.pid = 1000 + static_cast<int64_t>(request.session);
  trainers_.emplace(request.session, Trainer{node, request, {}, {}, {}, true});
  Status status = at(node).join(request, now);
  EXPECT_FALSE(status.ok()) << "was not refused";
  return status;
}

void Town::leave(SessionId session) {
  Trainer& who = trainers_.at(session);
  who.gone = true;
  at(who.node).leave(session);
  if (drains_at_once) drain(who.node);
}

void Town::die(SessionId session, const std::string& evidence) {
  Trainer& who = trainers_.at(session);
  who.gone = true;
  at(who.node).session_lost(session, evidence);
}

bool Town::connected(const std::string& node, const std::string& to) const {
  return connected_.count({node, to}) > 0;
}

int64_t Town::pid_of(SessionId session) const { return trainers_.at(session).request.pid; }

bool Town::waits(SessionId session) const {
  const Trainer& who = trainers_.at(session);
  return !who.gone && !who.admitted_to && !who.refusal;
}

bool Town::admitted(SessionId session) const {
  const Trainer& who = trainers_.at(session);
  return who.admitted_to && !who.closed;
}

std::string Town::refusal(SessionId session) const {
  const Trainer& who = trainers_.at(session);
  return who.refusal ? who.refusal->message() : "";
}

std::optional<Failure> Town::closed(SessionId session) const {
  return trainers_.at(session).closed;
}

JobId Town::job_of(SessionId session) const {
  return trainers_.at(session).admitted_to.value_or(JobId{});
}

bool Town::deliver(const std::string& from, const std::string& to) {
  auto& queue = link(from, to);
  if (queue.empty()) return false;
  const JobMessage message = queue.front();
  queue.pop_front();
  if (!connected(to, from)) return true;  // to has hung up already
  at(to).on_message(from, message, now);
  return true;
}

void Town::run() {
  bool moved = true;
  while (moved) {
    moved = false;
    for (const std::string& from : nodes()) {
      for (const std::string& to : nodes()) {
        if (from != to && held_.count({from, to}) == 0) moved = deliver(from, to) || moved;
      }
      moved = report(from) || moved;
      if (drains_at_once) drain(from);
    }
    moved = moved || under_way() > 0;
  }
}

void Town::settle() {
  constexpr int kEnough = 2000;
  for (int round = 0; round < kEnough; ++round) {
    run();
    Time next = 0;
    for (const std::string& node : nodes()) {
      const Time due = at(node).next_deadline();
      if (due != 0 && (next == 0 || due < next)) next = due;
    }
    if (next == 0) return;
    tick(std::max<Time>(next - now, 0) + 1 * kMillisecond);
  }
  ADD_FAILURE() << "a view change never comes to an end";
}

bool Town::report(const std::string& node) { return daemon(node).report(); }

bool Town::agrees(const View& view) {
  const auto [known, fresh] = views_.emplace(std::pair(view.incarnation, view.epoch), view);
  return fresh || known->second == view;
}

size_t Town::under_way() const {
  size_t sum = 0;
  for (const auto& [ends, queue] : links_) sum += held_.count(ends) == 0 ? queue.size() : 0;
  return sum;
}

std::vector<std::string> Town::under_way(const std::string& from, const std::string& to) const {
  std::vector<std::string> names;
  const auto it = links_.find({from, to});
  if (it == links_.end()) return names;
  for (const JobMessage& message : it->second) names.push_back(name_of(message));
  return names;
}

const JobMessage& Town::peek(const std::string& from, const std::string& to) const {
  return links_.at({from, to}).at(0);
}

void Town::drain(const std::string& node) { daemon(node).drain(); }

size_t Town::engines(const std::string& node) const { return daemon(node).engines.size(); }

bool Town::grows(const std::string& node) const {
  return daemon(node).engines.begin()->second.grows;
}

const std::vector<Failure>& Town::failed_engines(const std::string& node) const {
  return daemon(node).failures;
}

const std::vector<uint32_t>& Town::gone_members(const std::string& node) const {
  return daemon(node).gone;
}

void Town::tick(Time by) {
  now += by;
  for (const std::string& node : nodes()) at(node).tick(now);
}

}  // namespace gradring::core
