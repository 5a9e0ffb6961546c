// Puts a field that this release does not know into every entry of a daemon's records. The linker
// sends the calls of RecordLog::append here (CMakeLists.txt).
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <memory>

#include "daemon/records/record_log.h"

namespace {

using google::protobuf::Message;
using google::protobuf::MessageLite;
using gradring::daemon::RecordLog;

constexpr int kUnknownField = 9999;

}  // namespace

bool really_append(RecordLog* log, const MessageLite& entry) asm(
    "__real__ZN8gradring6daemon9RecordLog6appendERKN6google8protobuf11MessageLiteE");

bool append_with_more(RecordLog* log, const MessageLite& entry) asm(
    "__wrap__ZN8gradring6daemon9RecordLog6appendERKN6google8protobuf11MessageLiteE");

bool append_with_more(RecordLog* log, const MessageLite& entry) {
  const std::unique_ptr<Message> more(static_cast<const Message&>(entry).New());
  more->CheckTypeAndMergeFrom(entry);
  more->GetReflection()->MutableUnknownFields(more.get())->AddVarint(kUnknownField, 1);
  return really_append(log, *more);
}
