#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace gradring::client {

// The order in which a trainer comes to need its named ops, learned from its first steps: whatever
// it asks for first gets the highest priority from then on. A step is all that is submitted from
// one use of a name to its next.
//
// Learned from three whole steps in a row that have the same names, and kept until three others
// agree on different ones. A step is whole when everything in it has been asked for before the step
// that follows it ends; others teach nothing.
class NeedOrder {
 public:
  // In one step somebody may wait out of turn; in two of three hardly.
  static constexpr size_t kSteps = 3;

  struct Place {
    uint64_t step = 0;  // from 1
    // -1 and lower: below what is submitted without a name, or while this is not known yet (0).
    int32_t priority = 0;
  };
  // An op of this name goes out.
  Place submitted(const std::string& name);
  // The trainer asks for the one of this step for the first time.
  void needed(const std::string& name, uint64_t step);

  struct Learned {
    std::string name;
    int32_t priority = 0;
  };
  // The most urgent one first; empty: nothing has been learned yet.
  std::vector<Learned> learned() const;

 private:
  struct Step {
    uint64_t number = 0;
    std::unordered_map<std::string, uint32_t> names;  // and in which place each was submitted
    std::vector<std::string> needed;                  // in this order

    bool whole() const { return !names.empty() && needed.size() == names.size(); }
  };
  // Of the steps of late, what they say of a name.
  struct Seen {
    std::vector<uint32_t> needed;  // a place for each step
    uint32_t submitted = 0;
  };

  void learn_from(const Step& step);
  void settle();

  Step now_{1, {}, {}}, before_;
  std::map<std::string, Seen> seen_;
  size_t steps_seen_ = 0;
  std::unordered_map<std::string, int32_t> learned_;
};

}  // namespace gradring::client
