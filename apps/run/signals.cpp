#include "apps/run/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>

#include "core/error.h"

namespace tapestry {
namespace {

std::atomic<int> first_signal = 0;
std::atomic<bool> interrupted = false;
static_assert(std::atomic<int>::is_always_lock_free);  // otherwise a signal handler must not use it

void handle(int signal) {
  if (signal == SIGINT && interrupted.exchange(true)) _exit(128 + SIGINT);
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    check(sigaction(signal, &action, nullptr) == 0, "signals", "cannot handle signal ", signal,
          '.');
  }
}

const char* name_of_signal(int signal) {
  return signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "SIGUSR1";
}

int pending_signal() { return first_signal.load(); }

}  // namespace tapestry
