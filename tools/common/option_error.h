#pragma once

#include <boost/program_options/errors.hpp>
#include <string>

namespace gradring {

// What error.what() should say. Boost fills in its sentences by replacing "%value%" and the like
// for as long as it finds them, so that a person who writes just that as a value waits for ever
// (Boost 1.74).
inline std::string words_of(const boost::program_options::error& error) {
  using Named = boost::program_options::error_with_option_name;
  struct Harmless : Named {
    explicit Harmless(const Named& from) : Named(from) {
      for (auto& [name, value] : m_substitutions) {
        if (value.find('%' + name + '%') != std::string::npos) value = "(" + name + ")";
      }
    }
  };
  // It does not know which, and has a sentence for programmers.
  if (dynamic_cast<const boost::program_options::too_many_positional_options_error*>(&error)) {
    return "there is a word too many, which belongs to no option";
  }
  const auto* named = dynamic_cast<const Named*>(&error);
  return named == nullptr ? error.what() : Harmless(*named).what();
}

}  // namespace gradring
