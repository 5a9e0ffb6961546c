#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "tools/run/outlet.h"
#include "tools/run/tagger.h"

namespace gradring::tools {

// "2026-06-20 17:05:53.123 ", of this host.
std::string time_now();

// One of the two outputs of a process: from its pipe to one of ours and, as it came, into a file.
class Stream {
 public:
  Stream(Tagger tagger, Outlet* to) : tagger_(std::move(tagger)), to_(to) {}

  // From now on also into this file, which begins anew. The error is a sentence.
  tl::expected<void, std::string> save_to(const std::string& path);
  // Copies what is there, or as much of it as leaves the others their turn; all if this is the last
  // time. Closes the descriptor and makes it -1 then, and at its end.
  void drain(int* fd, bool last);
  // The file that could not take everything; empty: there is none.
  const std::string& failed_file() const { return failed_; }

 private:
  void save(std::string_view bytes);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  Tagger tagger_;
  Outlet* to_;
  std::string path_, failed_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace gradring::tools
