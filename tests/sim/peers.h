#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "daemon/core/messages.h"
#include "daemon/core/peer_net.h"
#include "daemon/core/time.h"

namespace gradring::sim {

using core::Time;

class World;
class SimNode;

// What one daemon says to another over those between them. It goes by number, and comes once.
struct RelayedHello {
  uint64_t memory = 0;      // equal as long as a daemon goes on from what the one before had
  uint64_t connection = 0;  // of the one who says hello
};
struct RelayedWelcome {
  uint64_t connection = 0;  // that it had in the hello
};
struct Said {
  uint32_t from = 0;
  uint32_t to = 0;
  bool taken = false;
  std::variant<RelayedHello, RelayedWelcome, core::JobMessage> what;
};

// How one life of a daemon stands with the others where not everybody is linked with everybody: as
// daemon/control/peers does it, over the same core::PeerNet.
class SimPeers : public core::PeerNetActions {
 public:
  SimPeers(World* world, SimNode* node, uint64_t boot);
  // As the next life of that daemon.
  void go_on_from(const SimPeers& before);

  uint64_t boot() const { return boot_; }
  // ---- those with a link ----
  void link_up(uint32_t peer);
  void link_lost(uint32_t peer, bool silent);
  void on_parcel(uint32_t link, const core::Parcel& parcel);
  void on_notices(uint32_t link, const std::vector<core::Notice>& notices);
  // ---- those without ----
  void send(uint32_t to, const core::JobMessage& message);
  void lose(uint32_t peer, bool silent);
  // A job has it as a member: slices are to go there.
  void need(uint32_t peer);

  void tick();
  std::string standing_with(uint32_t peer) const;  // for people
  Time next_deadline() const { return net_.next_deadline(); }

  void pass(const std::string& link, const core::Parcel& parcel) override;
  void pass(const std::string& link, const std::vector<core::Notice>& notices) override;
  void relayed_up(const std::string& peer) override;
  void relayed_down(const std::string& peer, bool silent, const std::string& why) override;
  void relayed_message(const std::string& peer, const std::string& body) override;

 private:
  struct Other {
    uint64_t hello = 0;  // ours that is under way or was welcomed; 0: none
    bool welcomed = false;
    bool greeted = false;  // by it
    uint64_t memory = 0;   // as it said then
    bool up = false;
    bool needed = false;
    uint64_t away_with = 0;  // its memory; 0: it is not away
    Time away_until = 0;
    Time greet_at = 0;  // no sooner
    Time pause = 0;
    Time pause_unheard = 0;
    std::vector<core::JobMessage> early;  // said before it was up
  };
  void greet(uint32_t peer);
  void greet_later(uint32_t peer);
  void say(uint32_t to, Said said);
  void try_up(uint32_t peer);
  void take(uint32_t from, const core::JobMessage& message);
  void wait_for(uint32_t peer);
  void connect_data(uint32_t peer);

  World* const world_;
  SimNode* const node_;
  const uint64_t boot_;
  uint64_t memory_ = 0;
  std::vector<Other> others_;
  core::PeerNet net_;
};

}  // namespace gradring::sim
