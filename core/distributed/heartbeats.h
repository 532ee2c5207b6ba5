// Which ranks are alive, and what they do: each reports to rank 0, which answers.
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

  /// A rank's activity, and since when (steady_seconds()).
  struct Doing {
    const char* phase;
    double since;
    int64_t reached = 0;  ///< operations that it has come to (Operation::is_reached)
  };

  /// Sends and receives messages that are due. Returns a report about a rank that is silent too
  /// long, else an empty string.
  std::string poll(const Doing& doing);

  /// "rank 3 (hostc)"
  std::string name_of(int rank) const;
  /// "reading data for 31 s", as rank 0 heard last; on other ranks only of rank 0.
  std::string last_word_of(int rank) const;

  /// The operations that every rank has come to, as this one has heard.
  int64_t reached_by_all() const;

  /// Announces the end: this rank sends no further message.
  void leave() { leaving_ = true; }
  /// True if every rank has said good-bye to this one and received its good-bye.
  bool gone() const;

 private:
  struct Beat {
    char phase[48];
    double seconds;
    int64_t reached;  // of the slowest rank, as rank 0 reports it
    int32_t leaving;
  };
  // The connection with one peer.
  struct Peer {
    int rank;
    double heard;  // time and content of the last message
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
