#include "apps/run/signals.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "data/files/mapped_file.h"
#include "tests/data/files/files.h"

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
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
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

// As timeout(1) sends it: to the process, and to its group.
TEST(Signals, ASecondTerminateAtTheSameMomentIsTheSame) {
  EXPECT_EQ(child_exit_code([] {
              raise(SIGTERM);
              raise(SIGTERM);
              return pending_signal();
            }),
            SIGTERM);
}

TEST(Signals, ASecondTerminateEndsAtOnce) {
  for (const int signal : {SIGTERM, SIGHUP}) {
    EXPECT_EQ(child_exit_code([signal] {
                raise(signal);
                usleep(600'000);
                raise(signal);
                return 0;
              }),
              128 + signal);
  }
}

// While a training reads its data.
TEST(Signals, TheFirstOneEndsAtOnceWhereThereIsNothingToSave) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    const auto child = [&] {
      install_signal_handlers();
      end_on_signal(true);
      raise(signal);
      _exit(0);
    };
    EXPECT_EXIT(child(), testing::ExitedWithCode(128 + signal),
                std::string("stopped by ") + name_of_signal(signal) + " before the first update");
  }
  EXPECT_EQ(child_exit_code([] {
              end_on_signal(true);
              end_on_signal(false);
              raise(SIGTERM);
              return pending_signal();
            }),
            SIGTERM);
}

TEST(Signals, AnotherOneIsNoRepetition) {
  EXPECT_EQ(child_exit_code([] {
              raise(SIGUSR1);
              usleep(600'000);
              raise(SIGTERM);
              raise(SIGINT);
              return pending_signal();
            }),
            SIGUSR1);
}

TEST(Signals, NohupStays) {
  EXPECT_EQ(child_exit_code([] {
              std::signal(SIGHUP, SIG_IGN);
              install_signal_handlers();
              raise(SIGHUP);
              return pending_signal();
            }),
            0);
}

TEST(Signals, AReaderThatGoesAwayEndsNothing) {
  EXPECT_EQ(child_exit_code([] {
              int ends[2];
              if (pipe(ends) != 0) return 1;
              close(ends[0]);
              return write(ends[1], "x", 1) == -1 ? 0 : 2;
            }),
            0);
}

// Somebody cuts the cache of a training.
TEST(Signals, ALostPageOfAMappedFileIsAnErrorOfTheData) {
  const TempFolder folder;
  const std::string path = folder.write("tokens-train.bin", std::string(1 << 16, 'x'));
  const auto read_cut = [&path] {
    const int file = open(path.c_str(), O_RDWR);
    const MappedFile mapped(file, 1 << 16, path);
    if (ftruncate(file, 0) != 0) return 1;
    return static_cast<int>(*static_cast<const volatile char*>(mapped.data() + 5000));
  };
  const auto child = [&] {
    install_signal_handlers();
    _exit(read_cut());
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(3), "tokens-train.bin was cut");
  // Another cause is not hidden.
  const auto other = [] {
    install_signal_handlers();
    raise(SIGBUS);
    raise(SIGBUS);
  };
  EXPECT_EXIT(other(), testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace tapestry
