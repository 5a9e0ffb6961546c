#include "transport/machine/gids.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace gradring::machine {
namespace {

using Bytes = std::array<unsigned char, 16>;

constexpr Bytes kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr size_t kMappedBytes = 12;
constexpr const char* kRoceV2 = "RoCE v2";

// IPv4 as mapped into IPv6, which is how GIDs hold it.
std::optional<Bytes> parse(const std::string& text) {
  Bytes bytes = kMapped;
  if (inet_pton(AF_INET, text.c_str(), bytes.data() + kMappedBytes) == 1) return bytes;
  if (inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1) return bytes;
  return std::nullopt;
}

bool is_v4(const Bytes& bytes) {
  return std::equal(bytes.begin(), bytes.begin() + kMappedBytes, kMapped.begin());
}

bool is_link_local(const Bytes& bytes) { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

bool alike(const Bytes& a, const Bytes& b, unsigned bits) {
  const size_t whole = std::min<size_t>(bits / 8, a.size());
  if (!std::equal(a.begin(), a.begin() + static_cast<ptrdiff_t>(whole), b.begin())) return false;
  if (whole == a.size()) return true;
  const auto mask = static_cast<unsigned char>(0xff00u >> (bits % 8));
  return (a[whole] & mask) == (b[whole] & mask);
}

// A GID whose address can be compared.
struct Entry {
  const Gid* gid;
  Bytes bytes;
  bool v2;
};

std::vector<Entry> entries_of(const GidTable& table) {
  std::vector<Entry> entries;
  for (const Gid& gid : table.gids) {
    if (const auto bytes = parse(gid.address)) {
      entries.push_back({&gid, *bytes, gid.type == kRoceV2});
    }
  }
  return entries;
}

// RoCE v2 before v1, IPv4 before IPv6, the lowest index first: it knows no networks.
const Entry* choice_of_ucx(const std::vector<Entry>& entries) {
  const Entry* best = nullptr;
  const auto rank = [](const Entry& entry) { return (entry.v2 ? 0 : 2) + !is_v4(entry.bytes); };
  for (const Entry& entry : entries) {
    if (best == nullptr || rank(entry) < rank(*best)) best = &entry;
  }
  return best;
}

bool in_network_of(const Entry& entry, const Bytes& near, const std::vector<OwnAddress>& own) {
  if (entry.bytes == near) return true;
  return std::any_of(own.begin(), own.end(), [&](const OwnAddress& one) {
    const auto address = parse(one.address);
    if (!address || *address != entry.bytes || is_v4(*address) != is_v4(near)) return false;
    const size_t mapped = is_v4(*address) ? kMappedBytes * 8 : 0;
    return alike(entry.bytes, near, static_cast<unsigned>(mapped) + one.prefix_bits);
  });
}

struct Found {
  const Entry* entry = nullptr;
  std::string why;
};

Found nearest(const std::vector<Entry>& entries, const std::vector<GidWish::Near>& near,
              const std::vector<OwnAddress>& own) {
  for (const GidWish::Near& one : near) {
    const auto bytes = parse(one.address);
    if (!bytes) continue;
    for (const Entry& entry : entries) {
      if (entry.v2 && entry.bytes == *bytes) return {&entry, "the address of " + one.what};
    }
    for (const Entry& entry : entries) {
      if (entry.v2 && in_network_of(entry, *bytes, own)) {
        return {&entry, fmt::format("in the network of {} {}", one.what, one.address)};
      }
    }
  }
  return {};
}

// What can be routed, of the family that the daemons speak.
Found routable(const std::vector<Entry>& entries, const std::vector<GidWish::Near>& near) {
  std::optional<bool> v4;
  for (const GidWish::Near& one : near) {
    const auto bytes = parse(one.address);
    if (bytes && !v4) v4 = is_v4(*bytes);
  }
  const Entry* other = nullptr;
  for (const Entry& entry : entries) {
    if (!entry.v2 || is_link_local(entry.bytes)) continue;
    if (v4 && is_v4(entry.bytes) == *v4) return {&entry, *v4 ? "IPv4 as listen" : "IPv6 as listen"};
    if (other == nullptr) other = &entry;
  }
  return {other, "not the link's own"};
}

std::string told(const Gid& gid) {
  const auto bytes = parse(gid.address);
  std::string address = gid.address;
  if (bytes && is_v4(*bytes)) {
    std::array<char, INET_ADDRSTRLEN> text{};
    address = inet_ntop(AF_INET, bytes->data() + kMappedBytes, text.data(), text.size());
  }
  return fmt::format("{} ({}, {}{})", gid.index, gid.type, address,
                     gid.interface.empty() ? "" : ", " + gid.interface);
}

tl::expected<GidChoice, Status> wished(const GidTable& table, uint32_t index) {
  std::string there;
  for (const Gid& gid : table.gids) {
    if (gid.index == index) return GidChoice{gid, true, "GID " + told(gid) + " by rdma-gid-index"};
    there += (there.empty() ? "" : ", ") + told(gid);
  }
  return tl::unexpected(
      Status(Code::kInvalidArgument,
             fmt::format("rdma-gid-index: {} is not in the table of {}; name one of these, or "
                         "auto: {}",
                         index, table.port, there.empty() ? "none is set" : there)));
}

}  // namespace

tl::expected<GidChoice, Status> choose_gid(const GidTable& table, const GidWish& wish,
                                           const std::vector<OwnAddress>& own) {
  if (wish.index) return wished(table, *wish.index);
  if (!table.ethernet) return GidChoice{};
  const std::vector<Entry> entries = entries_of(table);
  const Entry* of_ucx = choice_of_ucx(entries);
  if (of_ucx == nullptr) return GidChoice{};
  Found found = nearest(entries, wish.near, own);
  if (found.entry == nullptr) found = routable(entries, wish.near);
  if (found.entry == nullptr) return GidChoice{*of_ucx->gid, false, "GID " + told(*of_ucx->gid)};
  return GidChoice{*found.entry->gid, found.entry != of_ucx,
                   fmt::format("GID {}, {}", told(*found.entry->gid), found.why)};
}

}  // namespace gradring::machine
