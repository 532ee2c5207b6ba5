#include "apps/commands/serve/door/connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tapestry {
namespace {

// A stream whose client is so many bytes behind is given up.
constexpr int64_t kMostUnsent = 1 << 20;

}  // namespace

Connection::~Connection() { ::close(socket_); }

bool Connection::send_some() {
  while (!broken_ && sent_ < out_.size()) {
    const ssize_t count =
        ::send(socket_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent_ += static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return false;
    } else if (errno != EINTR) {
      broken_ = true;
    }
  }
  out_.clear();
  sent_ = 0;
  return true;
}

bool Connection::flush() {
  const std::lock_guard lock(mutex_);
  return send_some();
}

bool Connection::is_broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

int64_t Connection::unsent() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(out_.size() - sent_);
}

bool Connection::is_writable() const {
  const std::lock_guard lock(mutex_);
  return !broken_ && static_cast<int64_t>(out_.size() - sent_) < kMostUnsent;
}

ssize_t Connection::read(char* bytes, size_t size) {
  const size_t count = std::min(size, frame.size() - read_);
  std::memcpy(bytes, in.data() + read_, count);
  read_ += count;
  return static_cast<ssize_t>(count);
}

ssize_t Connection::write(const char* bytes, size_t size) {
  bool waits = false;
  {
    const std::lock_guard lock(mutex_);
    if (broken_) return -1;
    const bool waited = !out_.empty();
    out_.append(bytes, size);
    waits = !waited && !send_some() && !broken_;
    if (broken_) return -1;
  }
  if (waits && on_unsent) on_unsent();
  return static_cast<ssize_t>(size);
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip = address_;
  port = port_;
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void Connection::next_request(int64_t most_body) {
  in.erase(0, frame.size());
  if (in.empty()) in.shrink_to_fit();
  frame = RequestFrame(most_body);
  read_ = 0;
  cancelled.reset();
}

}  // namespace tapestry
