#include "daemon/core/obituaries.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace gradring::core {
namespace {

// Of each node that many lives are remembered: word of one before that is no longer on its way.
constexpr size_t kLives = 4;

// No node has to deny its death so often. Of a number that nothing can follow a death could not be
// denied, so there is none.
constexpr uint64_t kNumberMost = uint64_t{1} << 48;

bool counts(const Notice& notice) {
  return notice.dead ? notice.number < kNumberMost : notice.number <= kNumberMost;
}

bool newer(const Notice& a, const Notice& b) {
  return std::pair(a.number, a.dead) > std::pair(b.number, b.dead);
}

}  // namespace

const Obituaries::Life* Obituaries::find(const std::string& node, uint64_t boot) const {
  const auto it = lives_.find(node);
  if (it == lives_.end()) return nullptr;
  for (const Life& life : it->second) {
    if (life.last.boot == boot) return &life;
  }
  return nullptr;
}

Obituaries::Life* Obituaries::find(const std::string& node, uint64_t boot) {
  return const_cast<Life*>(std::as_const(*this).find(node, boot));
}

Obituaries::Life& Obituaries::enter(const Notice& notice, Time now) {
  Life* life = find(notice.node, notice.boot);
  if (life == nullptr) {
    auto& lives = lives_[notice.node];
    if (lives.size() == kLives) lives.erase(lives.begin());
    life = &lives.emplace_back();
  }
  const bool was_dead = life->last.dead;
  life->last = notice;
  life->ours = false;
  if (!notice.dead) {
    life->believed = false;
    life->due = 0;
  } else if (!was_dead) {
    life->due = now + patience_;
  }
  return *life;
}

std::vector<Notice> Obituaries::lost(const std::string& node, uint64_t boot, bool silent,
                                     const std::string& evidence, Time now) {
  const Life* known = find(node, boot);
  if (known != nullptr && known->last.dead) return {};
  Notice notice{node, boot, known == nullptr ? 0 : known->last.number, true, silent, evidence};
  if (!counts(notice)) return {};
  enter(notice, now).ours = true;
  return {notice};
}

std::vector<Notice> Obituaries::on_notice(const Notice& notice, Time now) {
  if (!counts(notice)) return {};
  if (notice.node == self_) {
    if (!notice.dead || notice.boot != boot_ || notice.number < denials_) return {};
    denials_ = notice.number + 1;
    return {{self_, boot_, denials_, false, false, ""}};
  }
  const Life* known = find(notice.node, notice.boot);
  if (known != nullptr && !newer(notice, known->last)) return {};
  enter(notice, now);
  return {notice};
}

std::vector<Notice> Obituaries::greet(const std::string& node, uint64_t boot) const {
  const Life* life = find(node, boot);
  if (life == nullptr || !life->last.dead) return {};
  return {life->last};
}

void Obituaries::forget_own() {
  for (auto it = lives_.begin(); it != lives_.end();) {
    std::erase_if(it->second, [](const Life& life) { return life.ours && life.last.dead; });
    it = it->second.empty() ? lives_.erase(it) : std::next(it);
  }
}

std::vector<Notice> Obituaries::tick(Time now) {
  std::vector<Notice> believed;
  for (auto& [node, lives] : lives_) {
    for (Life& life : lives) {
      if (life.due == 0 || now < life.due) continue;
      life.due = 0;
      life.believed = true;
      believed.push_back(life.last);
    }
  }
  return believed;
}

Time Obituaries::next_deadline() const {
  Time next = std::numeric_limits<Time>::max();
  for (const auto& [node, lives] : lives_) {
    for (const Life& life : lives) {
      if (life.due != 0) next = std::min(next, life.due);
    }
  }
  return next;
}

const Notice* Obituaries::word_on(const std::string& node, uint64_t boot) const {
  const Life* life = find(node, boot);
  return life == nullptr ? nullptr : &life->last;
}

bool Obituaries::dead(const std::string& node, uint64_t boot) const {
  const Life* life = find(node, boot);
  return life != nullptr && life->believed;
}

}  // namespace gradring::core
