// The door of the server: one thread reads the requests of all connections and sends what slow
// clients take later, so that a client who is slow or idle takes a descriptor, and no thread, from
// the others.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "apps/commands/serve/door/connection.h"
#include "apps/commands/serve/door/door_counts.h"

namespace tapestry {

class Door {
 public:
  struct Options {
    int64_t most_connections = 4096;  ///< of more, one that has been waited for long is closed
    int64_t most_body = 1 << 20;      ///< bytes
    int64_t threads = 16;             ///< that answer
    double read_seconds = 10;   ///< for a request from its first byte; of an idle connection, too
    double send_seconds = 120;  ///< for the rest of an answer
    /// Answers the request; returns true if the connection may have another. From any thread.
    std::function<bool(Connection& connection, bool last)> answer = {};
    /// The whole HTTP response for a request that cannot be read. `head` is its beginning.
    std::function<std::string(int status, const std::string& problem, std::string_view head)>
        refusal = {};
    DoorCounts* counts = nullptr;
  };
  /// `listening` is a socket that listens, and is closed at the end. Throws Error(kRuntime).
  Door(int listening, Options options);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  /// Answers until stop() is called and the running answers are sent.
  void run();
  /// From any thread: no new requests.
  void stop();
  /// From any thread: closes what is left.
  void give_up();

 private:
  using Shared = std::shared_ptr<Connection>;

  void accept_some();
  bool make_room();
  void read(const Shared& connection);
  void look(const Shared& connection);
  void refuse(const Shared& connection, int status, const std::string& problem);
  void answered(const Shared& connection);
  void finish(const Shared& connection);
  void send(const Shared& connection);
  void drain(const Shared& connection);
  void close(const Shared& connection);
  void close_late();
  void take_news();
  void event(const Shared& connection, unsigned events);
  void ask_for(Connection& connection, unsigned events);
  void wait_for(Connection& connection, Connection::State state, double seconds);
  void wait_no_more(Connection& connection);
  void listen();
  void wake();

  Options options_;
  int listening_;
  bool listens_ = false;  // epoll watches it
  const int epoll_;
  const int wake_;
  std::unordered_map<int, Shared> connections_;
  // Those that are waited for, the longest first: new ones, and those that had an answer before.
  std::list<Connection*> waiting_[2];
  int64_t buffered_ = 0;  // bytes of requests that are not answered yet
  std::atomic<bool> stops_{false}, gives_up_{false};
  std::mutex mutex_;
  std::vector<Shared> answered_;  // by the other threads
  std::vector<Shared> unsent_;
  std::unique_ptr<httplib::TaskQueue> threads_;
};

}  // namespace tapestry
