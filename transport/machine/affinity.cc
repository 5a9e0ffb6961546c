#include "transport/machine/affinity.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace gradring::machine {
namespace {

constexpr size_t kNone = static_cast<size_t>(-1);

// Which rail serves which GPU, and how far apart each pair is.
struct Board {
  std::vector<std::vector<Distance>> distance;  // [gpu][rail]
  std::vector<size_t> rail_of;                  // of each GPU
  std::vector<bool> fixed;                      // by a wish
  std::vector<size_t> load;                     // GPUs of each rail
  size_t share = 1;                             // GPUs that one rail serves at most

  void give(size_t gpu, size_t rail) {
    if (rail_of[gpu] != kNone) --load[rail_of[gpu]];
    rail_of[gpu] = rail;
    ++load[rail];
  }
};

// From near to far; among equals in the order of PCI addresses, which is that of the indexes.
void assign_greedily(Board* board) {
  const size_t gpus = board->rail_of.size(), rails = board->load.size();
  for (int far = 0; far <= static_cast<int>(Distance::kSys); ++far) {
    for (size_t gpu = 0; gpu < gpus; ++gpu) {
      for (size_t rail = 0; rail < rails && board->rail_of[gpu] == kNone; ++rail) {
        const bool at = static_cast<int>(board->distance[gpu][rail]) == far;
        if (at && board->load[rail] < board->share) board->give(gpu, rail);
      }
    }
  }
}

// What greed took from those that came later: moves and exchanges that make the sum of distances
// smaller, until there is none. Each makes it smaller by one at least, so it ends.
void mend(Board* board) {
  const auto far = [&](size_t gpu, size_t rail) {
    return static_cast<int>(board->distance[gpu][rail]);
  };
  const size_t gpus = board->rail_of.size(), rails = board->load.size();
  for (bool better = true; better;) {
    better = false;
    for (size_t a = 0; a < gpus; ++a) {
      if (board->fixed[a]) continue;
      for (size_t rail = 0; rail < rails; ++rail) {
        const bool nearer = far(a, rail) < far(a, board->rail_of[a]);
        if (!nearer || board->load[rail] >= board->share) continue;
        board->give(a, rail);
        better = true;
      }
      for (size_t b = a + 1; b < gpus; ++b) {
        const size_t of_a = board->rail_of[a], of_b = board->rail_of[b];
        if (board->fixed[b] || far(a, of_b) + far(b, of_a) >= far(a, of_a) + far(b, of_b)) continue;
        std::swap(board->rail_of[a], board->rail_of[b]);
        better = true;
      }
    }
  }
}

int find_gpu(const Machine& machine, const std::string& name) {
  const auto pci = parse_pci(name);
  size_t index = kNone;
  const std::string digits = name.rfind("GPU", 0) == 0 ? name.substr(3) : name;
  const char* end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, index);
  if (error != std::errc() || rest != end) index = kNone;
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const Gpu& gpu = machine.gpus[i];
    if (index == i || (pci && gpu.place.pci == *pci) || (!gpu.uuid.empty() && gpu.uuid == name)) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

void grant_wishes(const Machine& machine, const std::vector<const Rail*>& rails,
                  const Wishes& wishes, Board* board, std::vector<std::string>* complaints) {
  for (const std::string& wish : wishes.gpu_nics) {
    const size_t equals = wish.find('=');
    const int gpu = find_gpu(machine, wish.substr(0, equals));
    const int nic = equals == std::string::npos ? -1 : find_nic(machine, wish.substr(equals + 1));
    const auto rail = std::find_if(rails.begin(), rails.end(), [&](const Rail* one) {
      return std::count(one->nics.begin(), one->nics.end(), nic) > 0;
    });
    if (gpu < 0) {
      complaints->push_back(fmt::format("gpu-nic {}: there is no such GPU", wish));
    } else if (nic < 0) {
      complaints->push_back(fmt::format("gpu-nic {}: there is no such network card", wish));
    } else if (rail == rails.end()) {
      complaints->push_back(fmt::format("gpu-nic {}: that card is not used", wish));
    } else {
      board->give(static_cast<size_t>(gpu), static_cast<size_t>(rail - rails.begin()));
      board->fixed[static_cast<size_t>(gpu)] = true;
    }
  }
}

std::string reason_for(const Board& board, size_t gpu, size_t rail) {
  const std::vector<Distance>& row = board.distance[gpu];
  const auto same = static_cast<size_t>(std::count(row.begin(), row.end(), row[rail]));
  const auto nearest = *std::min_element(row.begin(), row.end());
  if (board.fixed[gpu]) return "named by gpu-nic";
  const std::string where = words_of(row[rail]);
  if (row[rail] != nearest) return where + "; nearer ones serve nearer GPUs";
  if (row.size() == 1) return where + ", the only one";
  if (same == row.size()) return where + ", like all others: by index";
  if (same > 1) return fmt::format("{}, one of {} as near: by index", where, same);
  return where + ", the nearest";
}

// More rails than GPUs by far: the rest goes round, to each GPU the nearest that is left.
void add_further(const Board& board, const std::vector<const Rail*>& rails, Affinity* affinity) {
  const size_t gpus = board.rail_of.size();
  if (gpus == 0) return;
  std::vector<bool> taken(rails.size(), false);
  for (size_t gpu = 0; gpu < gpus; ++gpu) taken[board.rail_of[gpu]] = true;
  for (size_t round = 1; round < rails.size() / gpus; ++round) {
    for (size_t gpu = 0; gpu < gpus; ++gpu) {
      size_t best = kNone;
      for (size_t rail = 0; rail < rails.size(); ++rail) {
        const std::vector<Distance>& row = board.distance[gpu];
        if (!taken[rail] && (best == kNone || row[rail] < row[best])) best = rail;
      }
      if (best == kNone) return;
      taken[best] = true;
      const Distance far = board.distance[gpu][best];
      affinity->choices[gpu].push_back(
          {rails[best]->nics.front(), far,
           fmt::format("{}, the nearest that is left", words_of(far))});
    }
  }
}

}  // namespace

Affinity affinity_of(const Machine& machine, const std::vector<Rail>& all, const Wishes& wishes) {
  std::vector<const Rail*> rails;
  for (const Rail& rail : all) {
    if (rail.used) rails.push_back(&rail);
  }
  const size_t gpus = machine.gpus.size();
  Affinity affinity;
  affinity.choices.resize(gpus);
  Board board;
  board.rail_of.assign(gpus, kNone);
  board.fixed.assign(gpus, false);
  board.load.assign(rails.size(), 0);
  grant_wishes(machine, rails, wishes, &board, &affinity.complaints);
  if (gpus == 0 || rails.empty()) return affinity;
  board.share = (gpus + rails.size() - 1) / rails.size();
  for (const Gpu& gpu : machine.gpus) {
    std::vector<Distance>& row = board.distance.emplace_back();
    for (const Rail* rail : rails) {
      Distance nearest = Distance::kSys;
      for (const size_t nic : rail->nics) {
        nearest = std::min(nearest, distance_between(gpu.place, machine.nics[nic].place));
      }
      row.push_back(nearest);
    }
  }
  assign_greedily(&board);
  mend(&board);
  for (size_t gpu = 0; gpu < gpus; ++gpu) {
    const size_t rail = board.rail_of[gpu];
    affinity.choices[gpu].push_back(
        {rails[rail]->nics.front(), board.distance[gpu][rail], reason_for(board, gpu, rail)});
  }
  add_further(board, rails, &affinity);
  return affinity;
}

}  // namespace gradring::machine
