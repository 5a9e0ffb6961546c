#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/config.h"
#include "tests/daemon/scratch.h"

namespace gradring::daemon {

class ConfigTest : public testing::Test {
 protected:
  tl::expected<Invocation, std::string> load(const std::vector<std::string>& arguments) {
    const auto lookup = [this](const std::string& name) -> std::optional<std::string> {
      const auto it = environment_.find(name);
      if (it == environment_.end()) return std::nullopt;
      return it->second;
    };
    return load_config(arguments, lookup, scratch_.path("default.conf"));
  }
  // What the operator is told about these flags, by either step.
  std::string told(const std::vector<std::string>& arguments) {
    const auto invocation = load(arguments);
    return invocation ? fault_of(invocation->config) : invocation.error();
  }
  void write(const std::string& name, const std::string& text) { scratch_.write(name, text); }

  Scratch scratch_;
  std::map<std::string, std::string> environment_;
};

}  // namespace gradring::daemon
