#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/tools/schema.h"
#include "tools/ctl/command.h"

namespace gradring::tools {

// Everything that is printed keeps its promise to scripts and cannot drive the terminal.
inline void expect_sound(const Answer& answer, const std::string& schema) {
  EXPECT_EQ(offence(schema_of(schema), document_of(answer)), "");
  EXPECT_THAT(answer.text, testing::Not(testing::HasSubstr("\x1b")));
  EXPECT_TRUE(answer.text.ends_with('\n'));
}

}  // namespace gradring::tools
