#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/ctl/top/model.h"

namespace gradring::tools::top {

// Columns of jobs, from left to right; by each they can be sorted.
enum class Sort { kName, kRanks, kNodes, kOps, kBytes, kBus, kExposed, kStraggler, kOldest };
inline constexpr int kSorts = 9;

// How somebody looks at the model.
struct View {
  Sort sort = Sort::kBytes;
  bool reversed = false;
  std::string filter{};  // jobs whose name has it
  bool typing = false;   // the filter
  bool paused = false;
  bool help = false;
  bool ranks = false;      // of the selected job, where the links are else
  std::string selected{};  // key of a job; the first where there is none like it
  size_t scroll = 0;       // ranks that are above the first one shown
  Choice choice{};
};

// What was pressed; `character` goes with kCharacter.
struct Key {
  enum class Kind { kCharacter, kUp, kDown, kLeft, kRight, kEnter, kEscape, kBackspace };
  Kind kind = Kind::kCharacter;
  char character = '\0';
};

// The jobs that are shown, in their order: the largest first, names from A; the other way round
// when reversed. What has no value comes last in any case, of that last what is over.
std::vector<const Job*> jobs_shown(const Model& model, const View& view);
// The job that is selected; nullptr where none is shown.
const Job* selected_job(const Model& model, const View& view);

// Changes the view as the key says. False: the end.
bool press(const Key& key, const Model& model, View* view);

}  // namespace gradring::tools::top
