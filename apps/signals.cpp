#include "apps/signals.h"

#include <unistd.h>

#include <csignal>

namespace tapestry {
namespace {

volatile std::sig_atomic_t arrived = 0;

void remember(int signal) {
  if (arrived != 0 && signal == SIGINT) _exit(128 + SIGINT);
  arrived = signal;
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int pending_signal() { return arrived; }

}  // namespace tapestry
