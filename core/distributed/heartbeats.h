// Which ranks are alive, and what they are doing: each tells rank 0, which answers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/distributed/transport.h"

namespace tapestry {

struct HeartbeatOptions {
  double interval_seconds = 2;
  double timeout_seconds = 60;  ///< a rank that is silent for so long is dead
};

class Heartbeats {
 public:
  Heartbeats(Transport& transport, const HeartbeatOptions& options);
  /// The host of each rank. Until then ranks are named by their numbers.
  void know(std::vector<std::string> hosts) { hosts_ = std::move(hosts); }

  /// What this rank does, and since when (steady_seconds()).
  struct Doing {
    const char* phase;
    double since;
    int64_t reached = 0;  ///< operations that it has come to (Operation::is_reached)
  };

  /// Sends and receives what is due. Returns what to say of a rank whose silence is too long, else
  /// nothing.
  std::string poll(const Doing& doing);

  /// "rank 3 (hostc)"
  std::string name_of(int rank) const;
  /// "reading data for 31 s", as rank 0 heard last; on other ranks only of rank 0.
  std::string last_word_of(int rank) const;

  /// The operations that every rank has come to, as this one has heard.
  int64_t reached_by_all() const;

  /// From now on this rank says good-bye: no message of it will be under way.
  void leave() { leaving_ = true; }
  /// Whether all have said good-bye to this rank and have heard its own.
  bool gone() const;

 private:
  struct Beat {
    char phase[48];
    double seconds;
    int64_t reached;  // rank 0 tells the fewest of all
    int32_t leaving;
  };
  // This rank's connection with one of those that it talks to.
  struct Peer {
    int rank;
    double heard;  // when, and what
    Beat last = {};
    Beat incoming = {}, outgoing = {};
    Transport::RequestPtr receiving = {}, sending = {};
    double sent = 0;
    bool answer = false;    // rank 0: it spoke
    bool gone = false;      // its last word came
    bool said_bye = false;  // ours went
  };

  void listen(Peer& peer, double now);
  void speak(Peer& peer, const Doing& doing, double now);

  Transport& transport_;
  std::vector<std::string> hosts_;
  HeartbeatOptions options_;
  std::vector<Peer> peers_;
  double polled_;
  int64_t reached_ = 0;
  bool leaving_ = false;
};

}  // namespace tapestry
