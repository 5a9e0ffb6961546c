#include "daemon/core/courier.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace gradring::core {
namespace {

// After a silence that many bodies go again, and the rest when these are taken.
constexpr size_t kAgainAtOnce = 8;

// What is sent again takes several ways at once, the first time and later: nobody knows yet who is
// silent on the way that failed, and of the others one in three may lead there as well.
constexpr uint32_t kWaysAtFirst = 2;
constexpr uint32_t kWaysLater = 4;

}  // namespace

Letter Courier::blank(const ChannelEnd& to) const {
  Letter letter;
  letter.from = own_;
  letter.to = to;
  letter.taken = to == theirs_ ? taken_ : 0;
  letter.attempt = attempt_;
  return letter;
}

void Courier::on_letter(const Letter& letter, Time now) {
  const bool same_life = letter.from.boot == theirs_.boot;
  if (same_life && letter.from.number < theirs_.number) return;  // was long under way
  const bool knows_us = letter.to == own_;
  if (letter.bound) {
    Letter answer = blank(letter.from);
    if (letter.to == own_) put(std::move(answer));
    return;
  }
  if (letter.from != theirs_) {
    const bool surely_new = knows_us || (same_life && theirs_.number != 0);
    if (!surely_new) {
      Letter question = blank(letter.from);
      question.asks = true;
      question.bound = state_ == State::kUp;
      return put(std::move(question));
    }
    if (state_ == State::kUp) {
      reopen(same_life ? "it has given up the channel" : "was restarted", false, now);
    }
    adopt(letter.from);
  }
  if (letter.to != own_) {
    Letter answer = blank(theirs_);
    answer.asks = state_ == State::kOpening;
    return put(std::move(answer));
  }
  doubted_ = 0;
  if (state_ == State::kOpening) {
    state_ = State::kUp;
    due_ = pause_ = 0;
    events_.push_back({Event::What::kUp, false, ""});
    put(blank(theirs_));
  } else if (letter.asks) {
    put(blank(theirs_));
  }
  take_receipt(letter.taken, now);
  if (letter.sequence != 0) take_body(letter, now);
}

void Courier::take_receipt(uint64_t taken, Time now) {
  bool progress = false;
  while (!outgoing_.empty() && outgoing_.begin()->first <= std::min(taken, sent_)) {
    outgoing_bytes_ -= outgoing_.begin()->second.size();
    outgoing_.erase(outgoing_.begin());
    progress = true;
  }
  if (!progress) return;
  pause_ = 0;
  stuck_ = now;
  due_ = outgoing_.empty() ? 0 : now + options_->first_wait;
  send_waiting(now);
}

void Courier::take_body(const Letter& letter, Time now) {
  if (answer_at_ == 0) answer_at_ = now + options_->answer_in;
  if (letter.sequence <= taken_) {
    // It does not hear that we took it: our way to it may be the broken one.
    ++attempt_;
    return;
  }
  if (letter.sequence > taken_ + options_->window ||
      early_bytes_ + letter.body.size() > options_->bytes_max) {
    return;
  }
  if (early_.emplace(letter.sequence, letter.body).second) early_bytes_ += letter.body.size();
  while (!early_.empty() && early_.begin()->first == taken_ + 1) {
    ++taken_;
    early_bytes_ -= early_.begin()->second.size();
    events_.push_back({Event::What::kMessage, false, std::move(early_.begin()->second)});
    early_.erase(early_.begin());
  }
}

bool Courier::send(std::string body, Time now) {
  if (state_ != State::kUp || overflowed_) return false;
  if (outgoing_.size() >= options_->bodies_max ||
      outgoing_bytes_ + body.size() > options_->bytes_max) {
    overflowed_ = true;  // broken at the next tick: nobody is told from inside send()
    return false;
  }
  if (outgoing_.empty()) stuck_ = now;
  outgoing_bytes_ += body.size();
  outgoing_.emplace(++last_, std::move(body));
  send_waiting(now);
  return true;
}

void Courier::send_waiting(Time now) {
  const uint64_t oldest = outgoing_.empty() ? last_ + 1 : outgoing_.begin()->first;
  for (auto it = outgoing_.upper_bound(sent_);
       it != outgoing_.end() && it->first < oldest + options_->window; ++it) {
    Letter letter = blank(theirs_);
    letter.sequence = sent_ = it->first;
    letter.body = it->second;
    put(std::move(letter));
    answer_at_ = 0;
  }
  if (due_ == 0 && !outgoing_.empty()) due_ = now + options_->first_wait;
}

void Courier::send_again(Time now) {
  for (uint32_t ways = pause_ == 0 ? kWaysAtFirst : kWaysLater; ways > 0; --ways) {
    ++attempt_;
    size_t again = 0;
    for (auto it = outgoing_.begin();
         it != outgoing_.end() && it->first <= sent_ && again < kAgainAtOnce; ++it, ++again) {
      Letter letter = blank(theirs_);
      letter.sequence = it->first;
      letter.body = it->second;
      put(std::move(letter));
      ++resent_;
    }
  }
  answer_at_ = 0;
  pause_ = std::min(std::max(2 * pause_, 2 * options_->first_wait), options_->longest_wait);
  due_ = now + pause_;
}

void Courier::close(const std::string& why, bool silent, Time now) {
  if (state_ == State::kUp) reopen(why, silent, now);
}

void Courier::hurry(Time when) {
  if (state_ != State::kOpening) return;
  pause_ = 0;
  due_ = std::min(due_, when);
}

void Courier::doubt(Time now) {
  if (state_ != State::kUp || doubted_ != 0) return;
  doubted_ = ask_at_ = now;
}

void Courier::reopen(const std::string& why, bool silent, Time now) {
  state_ = State::kOpening;
  ++own_.number;
  outgoing_.clear();
  early_.clear();
  outgoing_bytes_ = early_bytes_ = 0;
  last_ = sent_ = taken_ = 0;
  answer_at_ = stuck_ = doubted_ = 0;
  overflowed_ = false;
  pause_ = 0;
  due_ = now;  // the other end learns from it that this one has broken the channel
  events_.push_back({Event::What::kDown, silent, why});
}

void Courier::tick(Time now) {
  if (overflowed_) {
    reopen("does not read: " + std::to_string(outgoing_.size()) + " messages wait for it", false,
           now);
  }
  if (state_ == State::kOpening) {
    if (now < due_) return;
    Letter letter = blank(theirs_);
    letter.asks = true;
    put(std::move(letter));
    ++attempt_;
    pause_ = pause_ == 0 ? options_->first_pause : std::min(2 * pause_, options_->longest_pause);
    due_ = now + pause_;
    return;
  }
  if (due_ != 0 && now >= due_) {
    if (now - stuck_ >= options_->give_up) {
      return reopen("does not answer", true, now);
    }
    send_again(now);
  }
  if (doubted_ != 0 && now >= ask_at_) {
    if (now - doubted_ >= options_->give_up) return reopen("does not answer", true, now);
    Letter letter = blank(theirs_);
    letter.asks = true;
    put(std::move(letter));
    ++attempt_;
    // Each pause is as long as all before it.
    ask_at_ = now + std::clamp(now - doubted_, options_->first_pause, options_->longest_wait);
  }
  if (answer_at_ != 0 && now >= answer_at_) {
    answer_at_ = 0;
    put(blank(theirs_));
  }
}

Time Courier::next_deadline() const {
  if (overflowed_) return 0;
  Time next = std::numeric_limits<Time>::max();
  if (state_ == State::kOpening || due_ != 0) next = due_;
  if (answer_at_ != 0) next = std::min(next, answer_at_);
  if (doubted_ != 0) next = std::min(next, ask_at_);
  return next;
}

std::vector<Letter> Courier::take_letters() { return std::exchange(letters_, {}); }
std::vector<Courier::Event> Courier::take_events() { return std::exchange(events_, {}); }

}  // namespace gradring::core
