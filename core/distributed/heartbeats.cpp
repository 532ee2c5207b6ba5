#include "core/distributed/heartbeats.h"

#include <algorithm>
#include <cstring>

#include "core/base/clock.h"
#include "core/base/error.h"

namespace tapestry {
namespace {

constexpr int kTag = Transport::kLargestTag;

}  // namespace

Heartbeats::Heartbeats(Transport& transport, const HeartbeatOptions& options)
    : transport_(transport), options_(options), polled_(steady_seconds()) {
  const int first = transport.rank() == 0 ? 1 : 0;
  const int end = transport.rank() == 0 ? transport.size() : 1;
  for (int rank = first; rank < end; ++rank) {
    Peer& peer = peers_.emplace_back();
    peer.rank = rank;
    peer.heard = polled_;
    std::strcpy(peer.last.phase, "starting");
  }
  for (Peer& peer : peers_) {
    peer.receiving = transport_.receive(peer.rank, kTag, &peer.incoming, sizeof(Beat));
  }
}

std::string Heartbeats::poll(const Doing& doing) {
  const double now = steady_seconds();
  // A process that was stopped has received nothing; that does not mean that the others are silent.
  const double away = now - polled_;
  if (away > options_.interval_seconds) {
    for (Peer& peer : peers_) peer.heard += away;
  }
  polled_ = now;
  reached_ = doing.reached;
  for (Peer& peer : peers_) {
    listen(peer, now);
    speak(peer, doing, now);
    if (peer.gone || now - peer.heard <= options_.timeout_seconds) continue;
    return concat(name_of(peer.rank), " is silent for ", static_cast<int64_t>(now - peer.heard),
                  " s; its last word was: ", last_word_of(peer.rank));
  }
  return "";
}

void Heartbeats::listen(Peer& peer, double now) {
  if (peer.gone) return;
  if (!transport_.done(*peer.receiving)) return;
  peer.last = peer.incoming;
  peer.last.phase[sizeof peer.last.phase - 1] = 0;
  peer.heard = now;
  peer.answer = true;
  peer.gone = peer.last.leaving != 0;
  peer.receiving.reset();
  if (peer.gone) return;
  peer.receiving = transport_.receive(peer.rank, kTag, &peer.incoming, sizeof(Beat));
}

// Rank 0 speaks when it is spoken to; its good-bye answers that of the other.
void Heartbeats::speak(Peer& peer, const Doing& doing, double now) {
  if (peer.sending && transport_.done(*peer.sending)) peer.sending.reset();
  if (peer.sending || peer.said_bye) return;
  const bool first = transport_.rank() == 0;
  const bool due = first ? peer.answer : leaving_ || now - peer.sent >= options_.interval_seconds;
  if (!due) return;
  peer.answer = false;
  peer.sent = now;
  peer.said_bye = first ? peer.gone : leaving_;
  std::strncpy(peer.outgoing.phase, doing.phase, sizeof peer.outgoing.phase - 1);
  peer.outgoing.seconds = now - doing.since;
  peer.outgoing.reached = first ? reached_by_all() : reached_;
  peer.outgoing.leaving = peer.said_bye;
  peer.sending = transport_.send(peer.rank, kTag, &peer.outgoing, sizeof(Beat));
}

std::string Heartbeats::name_of(int rank) const {
  if (hosts_.empty()) return concat("rank ", rank);
  return concat("rank ", rank, " (", hosts_[static_cast<size_t>(rank)], ')');
}

std::string Heartbeats::last_word_of(int rank) const {
  for (const Peer& peer : peers_) {
    if (peer.rank != rank) continue;
    const double seconds = peer.last.seconds + steady_seconds() - peer.heard;
    return concat(peer.last.phase, " for ", static_cast<int64_t>(seconds), " s");
  }
  return "unknown";
}

int64_t Heartbeats::reached_by_all() const {
  int64_t fewest = reached_;
  for (const Peer& peer : peers_) fewest = std::min(fewest, peer.last.reached);
  return fewest;
}

bool Heartbeats::gone() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return peer.gone && peer.said_bye && !peer.sending; });
}

}  // namespace tapestry
