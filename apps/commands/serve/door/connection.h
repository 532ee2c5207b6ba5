// A client's connection, as the HTTP library reads one whole request from it and writes the answer.
// Neither waits for the client: the door (door.h) has read the request before, and sends what the
// client does not take at once.
#pragma once

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "apps/commands/serve/door/request_frame.h"

namespace tapestry {

class Connection final : public httplib::Stream {
 public:
  using Clock = std::chrono::steady_clock;
  enum class State {
    kReading,    ///< the request, or idle before it
    kAnswering,  ///< a thread has it
    kSending,    ///< the end of the answer
    kDraining    ///< what a refused client still sends, so that it can read why
  };

  /// Takes the socket, which must not block.
  Connection(int socket, std::string address, int port, int64_t most_body)
      : frame(most_body), socket_(socket), address_(std::move(address)), port_(port) {}
  ~Connection() override;

  int fd() const { return socket_; }
  /// Sends what waits, as far as the client takes it. Returns true if nothing is left.
  bool flush();
  /// True if the client cannot be reached any more.
  bool is_broken() const;
  int64_t unsent() const;

  // The door's.
  std::string in = {};  ///< bytes of the request, and perhaps of those behind it
  RequestFrame frame;
  State state = State::kReading;
  Clock::time_point deadline = {};  ///< of the state
  unsigned events = 0;              ///< of epoll, which are asked for
  bool waits = false;               ///< for its client; `place` is among those then
  std::list<Connection*>::iterator place = {};
  bool keeps = false;              ///< another request may follow
  bool known = false;              ///< it had an answer before
  bool understood = false;         ///< the library found an HTTP request
  Clock::time_point arrived = {};  ///< all of the request
  /// Of the request that is answered: true once nobody waits for it.
  std::shared_ptr<std::atomic<bool>> cancelled = {};
  std::function<void()> on_unsent = {};  ///< from any thread, when a client takes no more
  /// Ends the request that was read; its bytes are gone then.
  void next_request(int64_t most_body);

  // The library's.
  bool is_readable() const override { return read_ < frame.size(); }
  bool is_writable() const override;
  ssize_t read(char* bytes, size_t size) override;
  ssize_t write(const char* bytes, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  /// The library selects on nothing here.
  socket_t socket() const override { return 0; }

 private:
  bool send_some();  // under the lock

  const int socket_;
  const std::string address_;
  const int port_;
  size_t read_ = 0;  // of the request
  mutable std::mutex mutex_;
  std::string out_;
  size_t sent_ = 0;  // of out_
  bool broken_ = false;
};

}  // namespace tapestry
