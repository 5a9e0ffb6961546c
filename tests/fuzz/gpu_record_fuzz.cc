// What the child that watches GPUs writes into its pipe: a driver runs in it, and may write
// anything.
#include <algorithm>
#include <cstring>

#include "tests/fuzz/fuzz.h"
#include "transport/machine/gpu_records.h"

namespace {

using namespace gradring;
using fuzz::require;
using machine::GpuFault;
using machine::GpuNews;
using machine::GpuRecord;

std::string bytes_of(const std::vector<GpuNews>& all) {
  std::string bytes;
  for (const GpuNews& news : all) {
    const GpuRecord record = machine::record_of(news);
    bytes.append(reinterpret_cast<const char*>(&record), sizeof record);
  }
  return bytes;
}

const std::vector<std::string>& samples() {
  using Kind = GpuNews::Kind;
  const std::string gpu = "GPU-67726164-7269-6e67-2074-77696e202330";
  const machine::PciAddress pci = *machine::parse_pci("0000:17:00.0");
  static const std::vector<std::string> kSamples = {
      bytes_of({{Kind::kThere, GpuFault::kXid, 0, gpu, "", pci},
                {Kind::kFault, GpuFault::kXid, 79, gpu, "", pci}}),
      bytes_of({{Kind::kPart, GpuFault::kXid, 0, gpu, "MIG-" + gpu + "/1/0", pci},
                {Kind::kFault, GpuFault::kDoubleBitEcc, 0, gpu, "MIG-" + gpu + "/1/0", pci}}),
      bytes_of({{Kind::kFault, GpuFault::kLost, 0, gpu, "", pci}}),
  };
  return kSamples;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  return fuzz::mutate(samples(), data, size, size_max, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (; size >= sizeof(GpuRecord); data += sizeof(GpuRecord), size -= sizeof(GpuRecord)) {
    GpuRecord record;
    std::memcpy(static_cast<void*>(&record), data, sizeof record);
    const auto news = machine::news_of(record);
    if (!news) continue;
    // It becomes labels of metrics, and lines of the log.
    for (const std::string* name : {&news->gpu, &news->part}) {
      require(std::all_of(name->begin(), name->end(), [](char c) { return c > ' ' && c < 0x7f; }),
              "names are printable");
    }
    require(!news->gpu.empty(), "it says of which GPU");
    require(news->kind != GpuNews::Kind::kPart || !news->part.empty(), "a part has a name");
    require(*machine::meaning_of(news->fault, news->xid).what != '\0', "it can be explained");
    require(!machine::title_of(news->fault, news->xid).empty(), "it can be named");
    require(machine::news_of(machine::record_of(*news)) == news, "what is written is read again");
  }
  return 0;
}
