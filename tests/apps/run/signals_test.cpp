#include "apps/run/signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

namespace tapestry {
namespace {

/// Exit code of a child that runs f with the handlers installed, 1000 + signal when one killed it.
int child_exit_code(const std::function<int()>& f) {
  const pid_t child = fork();
  if (child == 0) {
    install_signal_handlers();
    _exit(f());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(Signals, NothingIsPendingAtFirst) {
  EXPECT_EQ(child_exit_code([] { return pending_signal(); }), 0);
}

TEST(Signals, TheFirstOneIsRemembered) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EQ(child_exit_code([signal] {
                raise(signal);
                return pending_signal();
              }),
              signal);
  }
}

TEST(Signals, ASecondInterruptEndsAtOnce) {
  EXPECT_EQ(child_exit_code([] {
              raise(SIGINT);
              raise(SIGINT);
              return 0;
            }),
            130);
}

TEST(Signals, ASecondTerminateDoesNot) {
  EXPECT_EQ(child_exit_code([] {
              raise(SIGTERM);
              raise(SIGTERM);
              return pending_signal();
            }),
            SIGTERM);
}

}  // namespace
}  // namespace tapestry
