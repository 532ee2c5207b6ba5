// HTTP: sockets, keys, limits and logs around the endpoints.
#pragma once

#include <memory>

#include "apps/commands/serve/service.h"

namespace tapestry {

class Server {
 public:
  /// Listens, but answers nothing yet. Throws Error(kRuntime) where the port cannot be had.
  explicit Server(Service& service);
  ~Server();
  int port() const { return port_; }

  /// Answers until stop() is called, and then until the running answers are done or --grace is
  /// over.
  void run();
  /// May be called from any thread.
  void stop();

 private:
  struct Members;

  std::unique_ptr<Members> members_;
  int port_ = 0;
};

/// The keys of a file, a line each. Throws Error(kData) if there are none.
std::vector<std::string> read_keys(const std::string& path);
/// True if `given` is one of the keys. The time depends on no key's bytes.
bool is_key(const std::vector<std::string>& keys, const std::string& given);

}  // namespace tapestry
