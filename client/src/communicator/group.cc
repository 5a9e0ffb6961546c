// gradring_group: some ranks of a job are a job of their own, which their daemons know under the
// job's name and the ranks.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "client/src/communicator/communicator.h"
#include "client/src/refusal.h"
#include "proto/wire.h"
#include "proto/within.h"

namespace gradring::client {
namespace {

// More would be cut off in every table.
constexpr size_t kRanksText = 40;

// "0-3,8"; of a long list the beginning, and its hash.
std::string in_words(const std::vector<uint32_t>& ranks) {
  std::string words;
  for (size_t i = 0; i < ranks.size(); ++i) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!words.empty()) words += ',';
    words += last > i ? fmt::format("{}-{}", ranks[i], ranks[last]) : fmt::to_string(ranks[i]);
    i = last;
  }
  if (words.size() <= kRanksText) return words;
  const uint64_t hash = hash_of_name(words);
  return fmt::format("{}.., {} ranks, {:08x}", words.substr(0, words.rfind(',', kRanksText)),
                     ranks.size(), hash & 0xffffffff);
}

}  // namespace

std::string Within::token() const {
  JobId job{};
  from_wire(incarnation, &job);  // as the daemon told it in the view
  return token_within(job, grown);
}

// All its ranks come to the same name and token by themselves: the list is the same, and so is how
// often it was used before.
tl::expected<Settings, Status> Communicator::settings_of_group(const std::vector<uint32_t>& ranks) {
  const auto refuse = [](std::string why) { return tl::unexpected(invalid(std::move(why))); };
  Inside inside(*this);
  if (Status refused = refusal(); !refused.ok()) return tl::unexpected(refused);
  const View& view = views_.newest();
  std::vector<uint32_t> sorted = ranks;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end()) {
    return refuse(fmt::format("rank {} is in the group twice", *twice));
  }
  for (const uint32_t rank : ranks) {
    if (std::ranges::binary_search(view.ranks, rank)) continue;
    return refuse(fmt::format("rank {} is not in job {}, which has {} ranks", rank, settings_.job,
                              view.size()));
  }
  const auto own = std::ranges::find(ranks, settings_.rank);
  if (own == ranks.end()) {
    return refuse(
        fmt::format("rank {} makes a group without itself: only the ranks of a group call "
                    "gradring_group",
                    settings_.rank));
  }
  // Who came in at a join point has made none: there all begin anew.
  if (view.grown != groups_since_) groups_.clear();
  groups_since_ = view.grown;
  const uint32_t nth = ++groups_[ranks];
  Settings settings = settings_;
  settings.job += fmt::format("[{}]", in_words(ranks));
  if (nth > 1) settings.job += fmt::format("#{}", nth);
  settings.within = Within{view.incarnation, view.grown, ranks};
  settings.token = settings.within->token();
  settings.policy = "fail";
  settings.rank = static_cast<uint32_t>(own - ranks.begin());
  settings.size = static_cast<uint32_t>(ranks.size());
  settings.local_rank = -1;
  return settings;
}

tl::expected<std::unique_ptr<Communicator>, Status> Communicator::group(
    const std::vector<uint32_t>& ranks, int64_t timeout_ms) {
  auto settings = settings_of_group(ranks);
  if (!settings) return tl::unexpected(settings.error());
  if (timeout_ms >= 0) settings->join_timeout_ms = timeout_ms;
  auto made = attach(std::move(*settings), commons_);
  if (made) {
    Status formed = form(made->get());
    if (!formed.ok()) made = tl::unexpected(formed);
  }
  if (made) (*made)->go_on();  // where close() came too late to end the wait
  // An aborted one came about, or was given up, for all of its ranks; one whose ranks did not all
  // come is the one that they try next.
  if (made || made.error().code() == Code::kAborted) return made;
  Inside inside(*this);
  const auto uses = groups_.find(ranks);
  if (uses != groups_.end() && uses->second > 0) --uses->second;
  return made;
}

// Waits for its other ranks, until this one is closed.
Status Communicator::form(Communicator* group) {
  {
    Inside inside(*this);
    if (Status refused = refusal(); !refused.ok()) return refused;
    forming_.push_back(group);
  }
  const struct Listed {
    Communicator& of;
    Communicator* group;
    ~Listed() {
      Inside inside(of);
      std::erase(of.forming_, group);
    }
  } listed{*this, group};
  return group->join();
}

}  // namespace gradring::client
