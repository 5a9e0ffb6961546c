// What a process tells its keeper: any process of the same user reaches that socket.
#include "daemon/fd_name.h"
#include "daemon/keep/notify_message.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace gradring;
using fuzz::require;
using keep::NotifyMessage;

const std::vector<std::string>& samples() {
  static const std::vector<std::string> kSamples = {
      "READY=1\nSTATUS=node a, listening at 127.0.0.1:7300\n",
      "FDSTORE=1\nFDNAME=seg.fedcba98765432.17\nFDPOLL=0",
      "FDSTOREREMOVE=1\nFDNAME=attach.sock",
      "WATCHDOG=1",
      "WATCHDOG=trigger\nSTOPPING=1",
      "BARRIER=1",
  };
  return kSamples;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  return fuzz::mutate(samples(), data, size, size_max, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto message = keep::parse_notify_message(bytes);
  if (!message) {
    require(!message.error().empty(), "a refusal says why");
    return 0;
  }
  require(size <= keep::kNotifyBytesMax, "only what fits is read");
  require(message->status.find_first_of(std::string("\n\0", 2)) == std::string::npos,
          "a status is one line");
  if (message->store != NotifyMessage::Store::kNothing) {
    require(daemon::is_fd_name(message->name), "names can be handed on in $LISTEN_FDNAMES");
  }
  if (message->barrier) {
    require(!message->ready && !message->stopping && message->status.empty() &&
                message->store == NotifyMessage::Store::kNothing &&
                message->watchdog == NotifyMessage::Watchdog::kSilent,
            "a barrier says nothing else");
  }
  return 0;
}
