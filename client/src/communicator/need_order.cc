#include "client/src/communicator/need_order.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace gradring::client {
namespace {

// Whether both have the same names.
template <class A, class B>
bool same_names(const A& a, const B& b) {
  return a.size() == b.size() &&
         std::all_of(a.begin(), a.end(), [&b](const auto& entry) { return b.count(entry.first); });
}

uint32_t middle_of(std::vector<uint32_t> places) {
  const auto middle = places.begin() + static_cast<ptrdiff_t>(places.size() / 2);
  std::nth_element(places.begin(), middle, places.end());
  return *middle;
}

}  // namespace

NeedOrder::Place NeedOrder::submitted(const std::string& name) {
  if (now_.names.count(name) > 0) {
    // What is left of a step is often asked for when the next one has begun, but hardly later.
    learn_from(before_);
    const uint64_t next = now_.number + 1;
    before_ = std::exchange(now_, {next, {}, {}});
  }
  now_.names.emplace(name, static_cast<uint32_t>(now_.names.size()));
  const auto known = learned_.find(name);
  return {now_.number, known == learned_.end() ? 0 : known->second};
}

void NeedOrder::needed(const std::string& name, uint64_t step) {
  for (Step* of : {&now_, &before_}) {
    if (of->number == step && of->names.count(name) > 0) of->needed.push_back(name);
  }
}

void NeedOrder::learn_from(const Step& step) {
  if (!step.whole()) return;
  if (same_names(step.names, learned_)) {
    seen_.clear();
    steps_seen_ = 0;
    return;
  }
  if (!same_names(step.names, seen_)) {
    seen_.clear();
    steps_seen_ = 0;
  }
  for (uint32_t place = 0; place < step.needed.size(); ++place) {
    const std::string& name = step.needed[place];
    Seen& seen = seen_[name];
    seen.needed.push_back(place);
    seen.submitted = step.names.at(name);
  }
  if (++steps_seen_ == kSteps) settle();
}

// By the middle one of a name's places, so that a step which was unlike the others counts for
// little; of equals, what is submitted first goes first, as it would if nothing were known.
void NeedOrder::settle() {
  std::vector<std::tuple<uint32_t, uint32_t, std::string>> order;
  order.reserve(seen_.size());
  for (const auto& [name, seen] : seen_) {
    order.emplace_back(middle_of(seen.needed), seen.submitted, name);
  }
  std::sort(order.begin(), order.end());
  learned_.clear();
  int32_t priority = 0;
  for (const auto& [needed, submitted, name] : order) learned_[name] = --priority;
  seen_.clear();
  steps_seen_ = 0;
}

std::vector<NeedOrder::Learned> NeedOrder::learned() const {
  std::vector<Learned> all;
  all.reserve(learned_.size());
  for (const auto& [name, priority] : learned_) all.push_back({name, priority});
  std::sort(all.begin(), all.end(),
            [](const Learned& a, const Learned& b) { return a.priority > b.priority; });
  return all;
}

}  // namespace gradring::client
