#include "apps/commands/serve/door/door.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/error.h"

namespace tapestry {
namespace {

using Clock = Connection::Clock;
using State = Connection::State;

constexpr int64_t kOtherDescriptors = 128;
constexpr int64_t kMostBuffered = 64 << 20;  // bytes, beside two bodies of the largest size
constexpr double kDrainSeconds = 2;
constexpr std::chrono::milliseconds kTick{50};

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(std::min(seconds, 1e6)));
}

// As many descriptors as the system allows. Returns their number.
int64_t raised_descriptors(int64_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  const rlim_t enough = static_cast<rlim_t>(wanted);
  if (limit.rlim_cur < enough) {
    limit.rlim_cur = std::min(enough, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  return static_cast<int64_t>(std::min(limit.rlim_cur, enough));
}

std::pair<std::string, int> address_of(const sockaddr_storage& from) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* host = nullptr;
  in_port_t port = 0;
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (from.ss_family == AF_INET) {
    std::memcpy(&v4, &from, sizeof v4);
    host = &v4.sin_addr, port = v4.sin_port;
  } else if (from.ss_family == AF_INET6) {
    std::memcpy(&v6, &from, sizeof v6);
    host = &v6.sin6_addr, port = v6.sin6_port;
  }
  if (host != nullptr) inet_ntop(from.ss_family, host, text, sizeof text);
  return {text, ntohs(port)};
}

}  // namespace

Door::Door(int listening, Options options)
    : options_(std::move(options)),
      listening_(listening),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  const int64_t wanted = options_.most_connections + kOtherDescriptors;
  options_.most_connections = std::max<int64_t>(1, raised_descriptors(wanted) - kOtherDescriptors);
  fcntl(listening_, F_SETFL, fcntl(listening_, F_GETFL) | O_NONBLOCK);
  epoll_event event{.events = EPOLLIN, .data = {.fd = wake_}};
  if (epoll_ < 0 || wake_ < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) != 0) {
    fail(ErrorKind::kRuntime, "[serve] cannot wait for sockets: ", std::strerror(errno), '.');
  }
  threads_ = std::make_unique<httplib::ThreadPool>(static_cast<size_t>(options_.threads));
}

Door::~Door() {
  if (threads_) threads_->shutdown();
  connections_.clear();
  if (listening_ >= 0) ::close(listening_);
  ::close(wake_);
  ::close(epoll_);
}

void Door::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

void Door::stop() {
  stops_ = true;
  wake();
}

void Door::give_up() {
  gives_up_ = true;
  stop();
}

void Door::listen() {
  if (listens_ || listening_ < 0) return;
  epoll_event event{.events = EPOLLIN, .data = {.fd = listening_}};
  listens_ = epoll_ctl(epoll_, EPOLL_CTL_ADD, listening_, &event) == 0;
}

// Without events epoll forgets it: it would tell of ends of connections again and again.
void Door::ask_for(Connection& connection, unsigned events) {
  if (events == connection.events) return;
  epoll_event event{.events = events, .data = {.fd = connection.fd()}};
  const int change = events == 0              ? EPOLL_CTL_DEL
                     : connection.events == 0 ? EPOLL_CTL_ADD
                                              : EPOLL_CTL_MOD;
  epoll_ctl(epoll_, change, connection.fd(), &event);
  connection.events = events;
}

void Door::wait_for(Connection& connection, State state, double seconds) {
  wait_no_more(connection);
  connection.state = state;
  connection.deadline = after(seconds);
  std::list<Connection*>& alike = waiting_[connection.known ? 1 : 0];
  connection.place = alike.insert(alike.end(), &connection);
  connection.waits = true;
  ask_for(connection, state == State::kSending ? EPOLLOUT : EPOLLIN | EPOLLRDHUP);
}

void Door::wait_no_more(Connection& connection) {
  if (connection.waits) waiting_[connection.known ? 1 : 0].erase(connection.place);
  connection.waits = false;
}

void Door::close(const Shared& connection) {
  const Shared held = connection;  // the argument may be the map's
  wait_no_more(*held);
  ask_for(*held, 0);
  if (held->state == State::kReading) buffered_ -= std::ssize(held->in);
  connections_.erase(held->fd());
  options_.counts->open = std::ssize(connections_);
}

// Closes what has been waited for longest. New ones and known ones have half of the room each for
// certain: neither a flood of new ones nor clients that stay idle close all of the others.
bool Door::make_room() {
  auto& [fresh, known] = waiting_;
  const bool many = 2 * std::ssize(fresh) >= options_.most_connections;
  std::list<Connection*>& from = known.empty() || (many && !fresh.empty()) ? fresh : known;
  if (from.empty()) return false;
  ++options_.counts->made_room;
  close(connections_.at(from.front()->fd()));
  return true;
}

void Door::accept_some() {
  constexpr int kAtOnce = 64;
  for (int i = 0; i < kAtOnce; ++i) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const int fd = accept4(listening_, reinterpret_cast<sockaddr*>(&from), &size,
                           SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      const bool none = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (errno == ECONNABORTED || errno == EINTR || (none && make_room())) continue;
      if (!none) return;
      epoll_ctl(epoll_, EPOLL_CTL_DEL, listening_, nullptr);  // until the next tick
      listens_ = false;
      return;
    }
    const int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    auto [address, port] = address_of(from);
    const auto connection =
        std::make_shared<Connection>(fd, std::move(address), port, options_.most_body);
    if (std::ssize(connections_) >= options_.most_connections && !make_room()) continue;
    connection->on_unsent = [this, weak = std::weak_ptr(connection)] {
      {
        const std::lock_guard lock(mutex_);
        if (Shared one = weak.lock()) unsent_.push_back(std::move(one));
      }
      wake();
    };
    connections_[fd] = connection;
    options_.counts->open = std::ssize(connections_);
    wait_for(*connection, State::kReading, options_.read_seconds);
  }
}

void Door::read(const Shared& connection) {
  constexpr int kAtOnce = 16;
  char bytes[16 << 10];
  for (int i = 0; i < kAtOnce && connection->state == State::kReading; ++i) {
    const ssize_t count = recv(connection->fd(), bytes, sizeof bytes, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count <= 0) return close(connection);
    if (connection->in.empty()) wait_for(*connection, State::kReading, options_.read_seconds);
    connection->in.append(bytes, static_cast<size_t>(count));
    buffered_ += count;
    look(connection);
  }
  while (buffered_ > kMostBuffered + 2 * options_.most_body && make_room()) {
  }
}

void Door::look(const Shared& connection) {
  constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  const RequestFrame::State state = connection->frame.look(connection->in);
  if (state == RequestFrame::State::kRefused) {
    return refuse(connection, connection->frame.status(), connection->frame.problem());
  }
  // The library must not find the header again, which has its answer here.
  if (const size_t at = connection->frame.expects_at(); at > 0 && connection->in[at] != 'X') {
    connection->in[at] = 'X';
    if (state == RequestFrame::State::kPartial) {
      connection->write(kContinue.data(), kContinue.size());
    }
  }
  if (state == RequestFrame::State::kPartial) return;
  wait_no_more(*connection);
  buffered_ -= std::ssize(connection->in);
  connection->state = State::kAnswering;
  connection->arrived = Clock::now();
  connection->cancelled = std::make_shared<std::atomic<bool>>(false);
  ask_for(*connection, EPOLLRDHUP);
  threads_->enqueue([this, connection] {
    try {
      connection->keeps = options_.answer(*connection, stops_.load());
    } catch (const std::exception&) {
      connection->keeps = false;
    }
    {
      const std::lock_guard lock(mutex_);
      answered_.push_back(connection);
    }
    wake();
  });
}

void Door::refuse(const Shared& connection, int status, const std::string& problem) {
  ++options_.counts->refused;
  buffered_ -= std::ssize(connection->in);
  const std::string answer = options_.refusal(status, problem, connection->in);
  connection->in = std::string();
  connection->keeps = false;
  connection->state = State::kSending;
  connection->write(answer.data(), answer.size());
  finish(connection);
}

// A part of the answer, or all of it, is written.
void Door::finish(const Shared& connection) {
  const bool all = connection->flush();
  if (connection->is_broken() || gives_up_.load()) return close(connection);
  if (!all) {
    if (connection->waits && connection->state == State::kSending) return;
    return wait_for(*connection, State::kSending, options_.send_seconds);
  }
  if (connection->keeps && !stops_.load()) {
    wait_no_more(*connection);  // among the new ones
    connection->known = true;
    connection->next_request(options_.most_body);
    buffered_ += std::ssize(connection->in);
    wait_for(*connection, State::kReading, options_.read_seconds);
    if (!connection->in.empty()) look(connection);
    return;
  }
  // What is closed with unread bytes takes the answer away from the client.
  shutdown(connection->fd(), SHUT_WR);
  wait_for(*connection, State::kDraining, kDrainSeconds);
}

void Door::drain(const Shared& connection) {
  char bytes[16 << 10];
  const ssize_t count = recv(connection->fd(), bytes, sizeof bytes, 0);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) close(connection);
}

void Door::event(const Shared& connection, unsigned events) {
  const bool gone = (events & (EPOLLHUP | EPOLLERR)) != 0;
  switch (connection->state) {
    case State::kReading:
      return read(connection);
    case State::kAnswering:
      if ((events & EPOLLRDHUP) != 0 || gone) {  // nobody waits for the answer
        ++options_.counts->cut;
        connection->cancelled->store(true);
        ask_for(*connection, 0);
      } else if ((events & EPOLLOUT) != 0 && connection->flush()) {
        ask_for(*connection, EPOLLRDHUP);
      }
      return;
    case State::kSending:
      return finish(connection);
    case State::kDraining:
      return drain(connection);
  }
}

// Those whose time is over. They are few, or all of a kind: each is looked at.
void Door::close_late() {
  const Clock::time_point now = Clock::now();
  std::vector<Shared> late;
  for (const auto& alike : waiting_) {
    for (Connection* connection : alike) {
      const bool ends = stops_.load() && connection->state != State::kSending;
      if (connection->deadline <= now || ends || gives_up_.load()) {
        late.push_back(connections_.at(connection->fd()));
      }
    }
  }
  for (const Shared& connection : late) {
    const bool partial = connection->state == State::kReading && !connection->in.empty();
    if (partial || connection->state == State::kSending) ++options_.counts->timed_out;
    if (partial && !stops_.load()) {
      refuse(connection, 408,
             concat("the request did not arrive within ", options_.read_seconds,
                    " seconds (--read-timeout)."));
    } else {
      close(connection);
    }
  }
}

// What the other threads tell.
void Door::take_news() {
  std::vector<Shared> answered, unsent;
  {
    const std::lock_guard lock(mutex_);
    answered.swap(answered_);
    unsent.swap(unsent_);
  }
  for (const Shared& connection : unsent) {
    if (connection->state == State::kAnswering) ask_for(*connection, EPOLLOUT | EPOLLRDHUP);
  }
  for (const Shared& connection : answered) finish(connection);
}

void Door::run() {
  std::array<epoll_event, 256> events;
  Clock::time_point next_tick = Clock::now();
  listen();
  for (;;) {
    if (stops_.load() && listening_ >= 0) {
      ::close(listening_);
      listening_ = -1;
    }
    if (stops_.load() && connections_.empty()) return;
    const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()),
                                 static_cast<int>(kTick.count()));
    bool accepts = false;
    for (int i = 0; i < count; ++i) {
      const auto& one = events[static_cast<size_t>(i)];
      if (one.data.fd == wake_) {
        uint64_t times;
        [[maybe_unused]] const ssize_t got = ::read(wake_, &times, sizeof times);
      }
      accepts = accepts || one.data.fd == listening_;
      const auto found = connections_.find(one.data.fd);
      if (found != connections_.end()) event(Shared(found->second), one.events);
    }
    take_news();
    // Last: a new connection may have the number of one that was closed just now.
    if (accepts && listening_ >= 0) accept_some();
    if (Clock::now() < next_tick) continue;
    next_tick = Clock::now() + kTick;
    listen();
    close_late();
  }
}

}  // namespace tapestry
