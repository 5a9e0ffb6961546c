// Send and receive: a broadcast in a job of the two ranks, which their daemons know under the job's
// name and their numbers. Its ops go along no other node, and fail for these two alone.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>
#include <string_view>

#include "client/src/communicator/communicator.h"
#include "client/src/limits.h"
#include "client/src/refusal.h"

namespace gradring::client {
namespace {

// Of the two the lower one is rank 0 of the pair.
uint32_t place_of(uint32_t rank, uint32_t other) { return rank < other ? 0 : 1; }

// What a daemon says of an op of two: it knows their places, and calls a transfer a broadcast.
std::string in_words_of_the_job(std::string_view said, uint32_t lower, uint32_t higher) {
  constexpr std::string_view kRank = "rank ", kBroadcast = "broadcast of ";
  std::string text;
  while (!said.empty()) {
    const char place = said.size() > kRank.size() ? said[kRank.size()] : ' ';
    const char behind = said.size() > kRank.size() + 1 ? said[kRank.size() + 1] : ' ';
    if (said.starts_with(kRank) && (place == '0' || place == '1') &&
        !std::isdigit(static_cast<unsigned char>(behind))) {
      text += fmt::format("{}{}", kRank, place == '0' ? lower : higher);
      said.remove_prefix(kRank.size() + 1);
    } else if (said.starts_with(kBroadcast)) {
      text += "transfer of ";
      said.remove_prefix(kBroadcast.size());
    } else {
      text += said.front();
      said.remove_prefix(1);
    }
  }
  return text;
}

}  // namespace

bool goes_to_a_peer(const gradring_op& op) {
  uint32_t collective = 0;
  std::memcpy(&collective, &op.collective, sizeof collective);
  return collective == GRADRING_SEND || collective == GRADRING_RECV;
}

tl::expected<uint64_t, Status> Communicator::submit_to_peer(const gradring_op& op) {
  std::vector<std::shared_ptr<Communicator>> old;  // goes when our lock is free again
  Inside inside(*this);
  auto& lock = inside.lock();
  lock.unlock();
  const std::lock_guard one_by_one(pairing_);
  lock.lock();
  std::string name;
  auto inner = op_of_pair(op, &name);
  if (!inner) return tl::unexpected(inner.error());
  inner->name = name.c_str();
  const auto pair = pair_with(lock, op.root, &old);
  if (!pair) return tl::unexpected(pair.error());
  lock.unlock();
  const auto ticket = (*pair)->submit(*inner);
  auto failure = ticket ? std::nullopt : (*pair)->job_failure();
  lock.lock();
  FarRequest far{*pair, ticket.value_or(0), op.root, op.collective == GRADRING_SEND};
  if (failure) {
    tell_in_our_numbers(far, &*failure);
    return tl::unexpected(Status(Code::kAborted, failure->message));
  }
  if (!ticket) {
    const auto [lower, higher] = std::minmax(op.root, settings_.rank);
    const Status& why = ticket.error();
    return tl::unexpected(Status(why.code(), in_words_of_the_job(why.message(), lower, higher)));
  }
  const uint64_t number = session_.next_number();
  far_[number] = std::move(far);
  return number;
}

// Both directions count by themselves, and so does each name.
tl::expected<gradring_op, Status> Communicator::op_of_pair(const gradring_op& op,
                                                           std::string* name) const {
  const auto refuse = [](std::string why) { return tl::unexpected(invalid(std::move(why))); };
  if (Status refused = refusal(); !refused.ok()) return tl::unexpected(refused);
  const bool sends = op.collective == GRADRING_SEND;
  const char* const what = sends ? "send" : "receive";
  if (op.root == settings_.rank) return refuse(fmt::format("a {} needs another rank", what));
  if (!std::ranges::binary_search(views_.newest().ranks, op.root)) {
    return refuse(fmt::format("rank {} is not in job {}, which has {} ranks", op.root,
                              settings_.job, views_.newest().size()));
  }
  const uint32_t from = sends ? settings_.rank : op.root;
  const uint32_t to = sends ? op.root : settings_.rank;
  *name = fmt::format("{} to {}", from, to);
  if (op.name != nullptr) {
    if (*op.name == '\0') return refuse("name is empty; use NULL for none");
    const size_t room = kOpNameBytes - name->size() - 2;
    if (::strnlen(op.name, room + 1) > room) {
      return refuse(fmt::format("name is longer than {} bytes", room));
    }
    *name += fmt::format(", {}", op.name);
  }
  gradring_op inner = op;
  inner.collective = GRADRING_BROADCAST;
  inner.root = place_of(from, to);
  // The daemon writes nothing where it has read.
  inner.input = inner.output = sends ? const_cast<void*>(op.input) : op.output;
  return inner;
}

std::string Communicator::what_it_is(const FarRequest& far) {
  return fmt::format("{} rank {}", far.sends ? "send to" : "receive from", far.peer);
}

// One that has failed is over for both; whoever needs another makes the next. None is made, closed
// or freed under our lock (fork_watch.h), for which others wait.
tl::expected<std::shared_ptr<Communicator>, Status> Communicator::pair_with(
    std::unique_lock<std::mutex>& lock, uint32_t peer,
    std::vector<std::shared_ptr<Communicator>>* old) {
  // Who came in at a join point has none: there all begin anew, and nothing is under way.
  while (views_.newest().grown != pairs_since_) {
    pairs_since_ = views_.newest().grown;
    const auto over = all_pairs();
    old->insert(old->end(), over.begin(), over.end());
    pairs_.clear();
    lock.unlock();
    const TimePoint deadline = Clock::now() + kLeaveTime;
    for (const auto& pair : over) pair->close(deadline);
    lock.lock();
  }
  std::shared_ptr<Communicator> known = pairs_[peer];
  if (known != nullptr && !known->over()) return known;
  Settings settings = settings_of_pair(peer);
  lock.unlock();
  auto made = begin(std::move(settings), commons_);
  lock.lock();
  if (!made) return made;
  if (Status refused = refusal(); !refused.ok()) {
    old->push_back(*made);
    return tl::unexpected(refused);
  }
  if (known != nullptr) old->push_back(known);
  pairs_[peer] = *made;
  return *made;
}

// Always of the same name: how often one of the two has waited for it in vain the other does not
// know.
Settings Communicator::settings_of_pair(uint32_t peer) const {
  const View& view = views_.newest();
  Settings settings = settings_;
  const auto [lower, higher] = std::minmax(peer, settings_.rank);
  settings.job += fmt::format("[{}:{}]", lower, higher);
  settings.within = Within{view.incarnation, view.grown, {lower, higher}};
  settings.token = settings.within->token();
  settings.policy = "fail";
  settings.wire = WireType::kNative;
  settings.learns_priorities = false;
  settings.rank = place_of(settings_.rank, peer);
  settings.size = 2;
  settings.local_rank = -1;
  return settings;
}

std::optional<Communicator::FarRequest> Communicator::far_request(uint64_t ticket) {
  Inside inside(*this);
  const auto found = far_.find(ticket);
  return found == far_.end() ? std::nullopt : std::optional(found->second);
}

tl::expected<std::optional<Outcome>, Status> Communicator::wait_far(uint64_t ticket,
                                                                    const FarRequest& far,
                                                                    TimePoint deadline) {
  Inside inside(*this);
  // Inside all the same: whoever closes this waits until we are out.
  inside.lock().unlock();
  auto outcome = far.body->wait(far.ticket, deadline);
  inside.lock().lock();
  // Another thread was quicker; the number there is not the one we were asked for.
  if (!outcome && outcome.error().code() == Code::kNotFound) {
    return tl::unexpected(unknown_request(ticket));
  }
  if (!outcome || !*outcome) return outcome;
  far_.erase(ticket);
  if (!(*outcome)->good()) tell_in_our_numbers(far, &**outcome);
  return outcome;
}

// A pair's ranks are 0 and 1.
void Communicator::tell_in_our_numbers(const FarRequest& far, Outcome* told) const {
  const bool says_no_more = told->message == describe(told->failure);
  uint32_t& blamed = told->failure.blame.rank;
  if (blamed != kNoRank) blamed = in_our_numbers(far, blamed);
  const auto [lower, higher] = std::minmax(far.peer, settings_.rank);
  std::string& evidence = told->failure.blame.evidence;
  evidence = in_words_of_the_job(evidence, lower, higher);
  told->message = fmt::format("{}: {}", what_it_is(far),
                              says_no_more ? describe(told->failure) : told->message);
}

uint32_t Communicator::in_our_numbers(const FarRequest& far, uint32_t rank) const {
  return rank == far.body->settings_.rank ? settings_.rank : far.peer;
}

tl::expected<Progress, Status> Communicator::far_progress(const FarRequest& far) {
  Inside inside(*this);
  inside.lock().unlock();  // see wait_far
  auto progress = far.body->progress(far.ticket);
  inside.lock().lock();
  if (!progress) return progress;
  progress->op = what_it_is(far);
  // The pair comes about when both of them need it.
  using What = Awaiting::What;
  if (progress->awaiting.what == What::kToJoin) progress->awaiting.what = What::kRanks;
  progress->awaiting.renumber([&](uint32_t rank) { return in_our_numbers(far, rank); });
  if (std::string told = describe(progress->awaiting); !told.empty()) {
    progress->what = std::move(told);
  }
  if (progress->first) progress->first = in_our_numbers(far, *progress->first);
  return progress;
}

std::vector<std::shared_ptr<Communicator>> Communicator::all_pairs() const {
  std::vector<std::shared_ptr<Communicator>> all;
  for (const auto& [peer, pair] : pairs_) {
    if (pair != nullptr) all.push_back(pair);
  }
  return all;
}

}  // namespace gradring::client
