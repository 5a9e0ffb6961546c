// Puts a field that this release does not know into every message. The linker sends the calls of
// SerializeAsString here (CMakeLists.txt).
#include <google/protobuf/message_lite.h>

#include <string>

std::string really_serialize(const google::protobuf::MessageLite* message) asm(
    "__real__ZNK6google8protobuf11MessageLite17SerializeAsStringB5cxx11Ev");

std::string serialize_with_more(const google::protobuf::MessageLite* message) asm(
    "__wrap__ZNK6google8protobuf11MessageLite17SerializeAsStringB5cxx11Ev");

std::string serialize_with_more(const google::protobuf::MessageLite* message) {
  return really_serialize(message) + "\xf8\xf0\x04\x01";  // field 9999, a number, 1
}
