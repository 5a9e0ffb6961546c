#include "daemon/core/ready_tree.h"

#include <gtest/gtest.h>

namespace gradring::core {
namespace {

TEST(ReadyTree, OfNobodyIsNone) {
  EXPECT_FALSE(ReadyTree());
  EXPECT_TRUE(ReadyTree(1, 0));
  EXPECT_EQ(ReadyTree(1, 0).children(), 0u);
  EXPECT_EQ(ReadyTree(1, 0).all_children(), 0u);
}

// Each member but the first is below exactly one other, which knows it.
TEST(ReadyTree, EachMemberIsBelowOneOther) {
  for (const uint32_t arity : {1u, 2u, 3u, 8u}) {
    for (const uint32_t members : {1u, 2u, 9u, 10u, 17u, 100u, 1024u}) {
      uint32_t below = 0;
      for (uint32_t me = 0; me < members; ++me) {
        const ReadyTree tree(members, me, arity);
        EXPECT_LE(tree.children(), arity);
        below += tree.children();
        uint8_t bits = 0;
        for (uint32_t i = 0; i < tree.children(); ++i) {
          const uint32_t child = tree.first_child() + i;
          ASSERT_LT(child, members);
          EXPECT_TRUE(tree.is_child(child));
          EXPECT_TRUE(ReadyTree(members, child, arity).is_parent(me));
          EXPECT_EQ(ReadyTree(members, child, arity).depth(), tree.depth() + 1);
          bits |= tree.bit_of(child);
        }
        EXPECT_EQ(bits, tree.all_children());
        EXPECT_FALSE(tree.is_child(me));
        EXPECT_FALSE(tree.is_child(tree.first_child() + tree.children()));
        EXPECT_LE(tree.depth(), tree.levels());
      }
      EXPECT_EQ(below, members - 1);
    }
  }
}

TEST(ReadyTree, GrowsSlowlyInDepth) {
  EXPECT_EQ(ReadyTree(17, 0).levels(), 2u);
  EXPECT_EQ(ReadyTree(73, 0).levels(), 2u);
  EXPECT_EQ(ReadyTree(74, 0).levels(), 3u);
  EXPECT_EQ(ReadyTree(4096, 0).levels(), 4u);
  EXPECT_EQ(ReadyTree(4096, 4095).depth(), 4u);
}

}  // namespace
}  // namespace gradring::core
