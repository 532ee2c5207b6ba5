#include "apps/run/signals.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "data/files/mapped_file.h"

namespace tapestry {
namespace {

constexpr int64_t kNobody = -1;

std::atomic<int> first_signal = 0;
std::atomic<bool> ends_at_once = false;
std::atomic<int64_t> first_milliseconds = kNobody;
std::function<int()> other_source;  // of SignalsFrom
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free &&
              std::atomic<int64_t>::is_always_lock_free);  // else no signal handler may use them

int64_t milliseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1000} * now.tv_sec + now.tv_nsec / 1'000'000;
}

// timeout(1) and job managers send a signal both to the process and to its group, so it comes twice
// at once. A second key press is meant as a second signal. Another signal is not a repetition:
// schedulers send SIGUSR1 or SIGINT, and SIGTERM later, while a save may be under way.
bool is_repeated(int signal, int64_t since) {
  constexpr int64_t kOneWord = 500;
  if (signal == SIGUSR1 || signal != first_signal.load()) return false;
  return signal == SIGINT || milliseconds() - since >= kOneWord;
}

void write_to_stderr(const char* text) {
  // If stderr is gone, the exit code still shows it.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

void handle(int signal) {
  if (ends_at_once.load()) {
    write_to_stderr("stopped by ");
    write_to_stderr(name_of_signal(signal));
    write_to_stderr(" before the first update; the same command begins again where this did.\n");
    _exit(128 + signal);
  }
  int64_t since = kNobody;
  if (!first_milliseconds.compare_exchange_strong(since, milliseconds()) &&
      is_repeated(signal, since)) {
    _exit(128 + signal);
  }
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
}

// A page of a mapped file is gone. The process cannot continue.
void handle_lost_page(int, siginfo_t* info, void*) {
  const char* const path = mapped_file_of(info->si_addr);
  if (path == nullptr) {  // another cause, which a core dump should show
    std::signal(SIGBUS, SIG_DFL);
    return;
  }
  write_to_stderr("error: [data] ");
  write_to_stderr(path);
  write_to_stderr(
      " was cut, or cannot be read, while it was in use; the next start makes it again.\n");
  _exit(static_cast<int>(ErrorKind::kData));
}

bool is_ignored(int signal) {
  struct sigaction action;
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void install_signal_handlers() {
  if (other_source) return;
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    if (signal == SIGHUP && is_ignored(SIGHUP)) continue;
    check(sigaction(signal, &action, nullptr) == 0, "signals", "cannot handle signal ", signal,
          '.');
  }
  struct sigaction lost;
  std::memset(&lost, 0, sizeof lost);
  lost.sa_sigaction = handle_lost_page;
  lost.sa_flags = SA_SIGINFO;
  check(sigaction(SIGBUS, &lost, nullptr) == 0, "signals", "cannot handle SIGBUS.");
  std::signal(SIGPIPE, SIG_IGN);
}

const char* name_of_signal(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGHUP:
      return "SIGHUP";
    default:
      return "SIGUSR1";
  }
}

void end_on_signal(bool at_once) { ends_at_once = at_once && !other_source; }

int pending_signal() { return other_source ? other_source() : first_signal.load(); }

SignalsFrom::SignalsFrom(std::function<int()> pending) { other_source = std::move(pending); }
SignalsFrom::~SignalsFrom() { other_source = nullptr; }

}  // namespace tapestry
