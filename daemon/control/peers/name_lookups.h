#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace gradring::daemon {

// Looks up the names of peers on threads of its own, which are there while there is something to
// look up: a name server that is away keeps whoever asks it waiting for many seconds. libzmq would
// ask in the thread that moves the messages of all peers, and all of them would fall silent.
// Control thread only.
class NameLookups {
 public:
  struct Answer {
    std::string host;   // a numeric address
    std::string fault;  // in words, where there is none
  };
  // Waits for name servers; any thread. `by_ipv6`: its address of IPv6, if it has one.
  using Ask = std::function<Answer(const std::string& name, bool by_ipv6)>;
  static Answer ask(const std::string& name, bool by_ipv6);
  // What there is to say meanwhile.
  static std::string unanswered(const std::string& name);

  explicit NameLookups(Ask ask = &NameLookups::ask);
  NameLookups(const NameLookups&) = delete;
  NameLookups& operator=(const NameLookups&) = delete;
  // Waits for no name server: a lookup that is under way ends by itself.
  ~NameLookups();

  // The answer, which is told once; nothing: it is being looked up from now on, if not already.
  std::optional<Answer> look_up(const std::string& name, bool by_ipv6);

  // Readable when there are answers that there were not at the last hear(). -1: the system has no
  // descriptor for it.
  int event_fd() const;
  void hear();

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace gradring::daemon
