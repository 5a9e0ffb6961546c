#pragma once

#include <string_view>

namespace gradring::tools {

// First of all in main. Of a program that is started with one of its three closed, something else
// would be opened there, and what is printed would go into it: into a socket, say.
void fill_standard_descriptors();

// Writes all of it to stdout, at once. False if that cannot be, as on a disk that is full: what
// fmt::print throws then would end the program by a signal.
[[nodiscard]] bool put_out(std::string_view text);

// The same to stderr, of which nobody could be told that it takes nothing.
void put_err(std::string_view text);

// Whether who read stdout has closed it, such as a head that has its lines: what prints again and
// again would go on for nobody as long as it has nothing to print.
bool reader_has_gone();

}  // namespace gradring::tools
