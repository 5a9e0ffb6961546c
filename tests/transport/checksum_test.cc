#include "transport/checksum.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

namespace gradring::transport {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(size_t count) {
  std::mt19937_64 random(20240611);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

uint32_t crc32c_of(std::string_view text) {
  return crc32c(std::as_bytes(std::span(text.data(), text.size())));
}

// The polynomial division of the standard, one bit at a time.
uint32_t reference(std::span<const std::byte> bytes) {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // 0x1edc6f41, lowest bit first
  uint32_t remainder = ~uint32_t{0};
  for (const std::byte byte : bytes) {
    remainder ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? kPolynomial : 0);
    }
  }
  return ~remainder;
}

// RFC 3720, appendix B.4, which prints the bytes of the result in the order they travel in.
TEST(Checksum, AgreesWithTheVectorsOfRfc3720) {
  Bytes bytes(32, std::byte{0x00});
  EXPECT_EQ(crc32c(bytes), 0x8a9136aau);
  bytes.assign(32, std::byte{0xff});
  EXPECT_EQ(crc32c(bytes), 0x62a8ab43u);
  for (size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(bytes), 0x46dd794eu);
  for (size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(31 - i);
  EXPECT_EQ(crc32c(bytes), 0x113fdb5cu);

  constexpr std::array<uint8_t, 48> kScsiRead = {
      0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
      0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
      0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
      0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
  EXPECT_EQ(crc32c(std::as_bytes(std::span(kScsiRead))), 0xd9963a56u);
}

TEST(Checksum, AgreesWithTheCheckValueOfTheCatalogues) {
  EXPECT_EQ(crc32c_of("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c_of(""), 0u);
}

TEST(Checksum, AgreesWithTheDivisionAtEveryLengthAndAlignment) {
  const Bytes bytes = random_bytes(400);
  for (size_t length = 0; length <= 300; ++length) {
    for (size_t at = 0; at < 16; ++at) {
      const auto piece = std::span(bytes).subspan(at, length);
      ASSERT_EQ(crc32c(piece), reference(piece)) << length << " bytes at " << at;
    }
  }
}

// Long enough for every loop that an implementation may have for long ones, and lengths around
// them.
TEST(Checksum, AgreesWithTheDivisionOnSlices) {
  const Bytes bytes = random_bytes((256 << 10) + 64);
  for (const size_t length :
       {1 << 10, 4096 - 1, 4096 + 1, 12345, 64 << 10, (256 << 10) - 3, 256 << 10}) {
    for (const size_t at : {0, 4, 13}) {
      const auto piece = std::span(bytes).subspan(at, length);
      ASSERT_EQ(crc32c(piece), reference(piece)) << length << " bytes at " << at;
    }
  }
}

TEST(Checksum, GoesOnWhereTheLastOneEnded) {
  const Bytes bytes = random_bytes(1000);
  const uint32_t whole = crc32c(bytes);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    const uint32_t first = crc32c(std::span(bytes).first(cut));
    ASSERT_EQ(crc32c(std::span(bytes).subspan(cut), first), whole) << "cut at " << cut;
  }
}

TEST(Checksum, EveryFlippedBitIsSeen) {
  Bytes bytes = random_bytes(1024);
  const uint32_t before = crc32c(bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const auto flip = static_cast<std::byte>(1 << (bit % 8));
    bytes[bit / 8] ^= flip;
    ASSERT_NE(crc32c(bytes), before) << "bit " << bit;
    bytes[bit / 8] ^= flip;
  }
}

// A slot may be the last thing in front of memory that is not ours.
TEST(Checksum, ReadsNothingBeyondTheEnds) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const memory = mmap(nullptr, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const middle = static_cast<std::byte*>(memory) + page;
  ASSERT_EQ(mprotect(middle, page, PROT_READ | PROT_WRITE), 0);
  const Bytes bytes = random_bytes(page);
  std::memcpy(middle, bytes.data(), page);
  for (size_t length = 0; length <= 300; ++length) {
    const std::span<const std::byte> front(middle, length);
    const std::span<const std::byte> back(middle + page - length, length);
    ASSERT_EQ(crc32c(front), reference(front)) << length;
    ASSERT_EQ(crc32c(back), reference(back)) << length;
  }
  munmap(memory, 3 * page);
}

}  // namespace
}  // namespace gradring::transport
