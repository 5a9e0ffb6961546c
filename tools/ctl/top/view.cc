#include "tools/ctl/top/view.h"

#include <algorithm>
#include <optional>

namespace gradring::tools::top {
namespace {

constexpr size_t kFilterLongest = 64;

// By what a job stands where; nothing where it has no such value.
std::optional<double> value_of(const Job& job, Sort sort) {
  switch (sort) {
    case Sort::kName:
      return 0;
    case Sort::kRanks:
      return job.size;
    case Sort::kNodes:
      return job.nodes;
    case Sort::kOps:
      return job.ops_per_second;
    case Sort::kBytes:
      return job.bytes_per_second;
    case Sort::kBus:
      return job.bus_bytes_per_second;
    case Sort::kExposed:
      return job.exposed;
    case Sort::kStraggler:
      return job.straggler ? std::optional(job.straggler->late_seconds) : std::nullopt;
    case Sort::kOldest:
      return job.oldest ? std::optional(static_cast<double>(job.oldest->age_ms)) : std::nullopt;
  }
  return std::nullopt;
}

void sort_by(int steps, View* view) {
  view->sort = static_cast<Sort>((static_cast<int>(view->sort) + kSorts + steps) % kSorts);
}

// This node, then all of them, then each of its peers.
void choose_next(const Model& model, View* view) {
  Choice& choice = view->choice;
  if (!choice.all && (choice.node.empty() || choice.node == model.here)) {
    choice = {.all = true};
    return;
  }
  const auto now = std::ranges::find(model.peers, choice.node);
  const auto next = choice.all ? model.peers.begin() : now == model.peers.end() ? now : now + 1;
  choice = {.node = next == model.peers.end() ? "" : *next};
}

void select(int steps, const Model& model, View* view) {
  if (view->ranks) {
    if (steps > 0) {
      const Job* const job = selected_job(model, *view);
      if (job != nullptr && view->scroll + 1 < job->ranks.size()) ++view->scroll;
    } else if (view->scroll > 0) {
      --view->scroll;
    }
    return;
  }
  const auto jobs = jobs_shown(model, *view);
  const auto at = std::ranges::find(jobs, selected_job(model, *view));
  if (at == jobs.end()) return;
  const auto index = at - jobs.begin() + steps;
  if (index < 0 || index >= static_cast<std::ptrdiff_t>(jobs.size())) return;
  view->selected = jobs[static_cast<size_t>(index)]->key();
}

// The last one, with all of its bytes.
void take_letter(std::string* text) {
  while (!text->empty()) {
    const bool begins = (text->back() & 0xc0) != 0x80;
    text->pop_back();
    if (begins) return;
  }
}

void type(const Key& key, View* view) {
  switch (key.kind) {
    case Key::Kind::kCharacter:
      if (view->filter.size() < kFilterLongest) view->filter += key.character;
      break;
    case Key::Kind::kBackspace:
      take_letter(&view->filter);
      break;
    case Key::Kind::kEscape:
      view->filter.clear();
      view->typing = false;
      break;
    case Key::Kind::kEnter:
      view->typing = false;
      break;
    default:
      break;
  }
}

bool press_letter(char letter, const Model& model, View* view) {
  switch (letter) {
    case 'q':
      return false;
    case 's':
      sort_by(1, view);
      break;
    case 'r':
      view->reversed = !view->reversed;
      break;
    case '/':
      view->typing = true;
      break;
    case 'n':
      choose_next(model, view);
      break;
    case 'p':
      view->paused = !view->paused;
      break;
    case 'h':
    case '?':
      view->help = true;
      break;
    default:
      break;
  }
  return true;
}

}  // namespace

std::vector<const Job*> jobs_shown(const Model& model, const View& view) {
  std::vector<const Job*> jobs;
  for (const Job& job : model.jobs) {
    if (job.name.find(view.filter) != std::string::npos) jobs.push_back(&job);
  }
  std::ranges::stable_sort(jobs, [&](const Job* a, const Job* b) {
    const auto of_a = value_of(*a, view.sort);
    const auto of_b = value_of(*b, view.sort);
    if (of_a.has_value() != of_b.has_value()) return of_a.has_value();
    if (!of_a && a->over != b->over) return b->over;
    if (of_a != of_b) return view.reversed ? *of_a < *of_b : *of_a > *of_b;
    return view.sort == Sort::kName && view.reversed ? a->name > b->name : a->name < b->name;
  });
  return jobs;
}

const Job* selected_job(const Model& model, const View& view) {
  const auto jobs = jobs_shown(model, view);
  const auto it =
      std::ranges::find_if(jobs, [&](const Job* job) { return job->key() == view.selected; });
  if (it != jobs.end()) return *it;
  return jobs.empty() ? nullptr : jobs.front();
}

bool press(const Key& key, const Model& model, View* view) {
  if (view->help) {
    view->help = false;
    return key.kind != Key::Kind::kCharacter || key.character != 'q';
  }
  if (view->typing) {
    type(key, view);
    return true;
  }
  switch (key.kind) {
    case Key::Kind::kCharacter:
      return press_letter(key.character, model, view);
    case Key::Kind::kUp:
      select(-1, model, view);
      break;
    case Key::Kind::kDown:
      select(1, model, view);
      break;
    case Key::Kind::kLeft:
      sort_by(-1, view);
      break;
    case Key::Kind::kRight:
      sort_by(1, view);
      break;
    case Key::Kind::kEnter:
      view->ranks = !view->ranks && selected_job(model, *view) != nullptr;
      view->scroll = 0;
      if (view->ranks) view->selected = selected_job(model, *view)->key();
      break;
    case Key::Kind::kEscape:
    case Key::Kind::kBackspace:
      if (!view->ranks) view->filter.clear();
      view->ranks = false;
      break;
  }
  return true;
}

}  // namespace gradring::tools::top
