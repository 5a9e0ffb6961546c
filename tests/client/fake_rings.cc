#include "tests/client/fake_rings.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/client/fake_sockets.h"

namespace gradring::test {
namespace {

// Zeroed memory is two empty rings.
int make_memory() {
  const int fd = ::memfd_create("fake rings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  must(fd >= 0 && ::ftruncate(fd, sizeof(RingPair)) == 0, "memory for rings");
  ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return fd;
}

RingPair* map(int fd) {
  void* memory = ::mmap(nullptr, sizeof(RingPair), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  must(memory != MAP_FAILED, "mmap");
  return static_cast<RingPair*>(memory);
}

}  // namespace

FakeRings::FakeRings()
    : descriptors_{make_memory(), ::eventfd(0, EFD_CLOEXEC), ::eventfd(0, EFD_CLOEXEC)},
      pair_(map(descriptors_[0])),
      ends_(&pair_->ends) {}

FakeRings::~FakeRings() {
  ::munmap(pair_, sizeof(RingPair));
  for (const int fd : descriptors_) ::close(fd);
}

void FakeRings::put(const RingEnd& end) {
  must(ends_.put(end), "room for an end");
  if (ends_.must_wake()) ::eventfd_write(descriptors_[2], 1);
}

}  // namespace gradring::test
