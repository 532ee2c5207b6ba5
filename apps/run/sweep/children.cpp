#include "apps/run/sweep/children.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "apps/run/signals.h"
#include "core/base/error.h"

namespace tapestry {
namespace {

constexpr int kNoProgram = 127;  // a shell's code for it

struct Child {
  pid_t process;
  size_t job;
};

/// The children that run. Those that are left at the end are stopped and waited for.
class Children {
 public:
  // A parent that ignores SIGCHLD leaves that to its children: then the system forgets how theirs
  // ended before anybody can ask.
  Children() { std::signal(SIGCHLD, SIG_DFL); }
  ~Children() { stop(); }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  size_t size() const { return running_.size(); }

  void start(const ChildJob& job, size_t number) {
    std::vector<std::string> arguments = job.arguments;
    std::string name = "tapestry";
    std::vector<char*> argv = {name.data()};
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const int log = open(job.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log < 0) fail_of_system(concat("write ", job.log));
    const pid_t parent = getpid(), process = fork();
    if (process == 0) become(parent, log, argv);
    const int reason = errno;
    close(log);
    errno = reason;
    if (process < 0) fail_of_system("start another process");
    running_.push_back({process, number});
  }

  /// Removes the children that have ended, and calls `ended` for each.
  void collect(const std::function<void(size_t job, int code)>& ended) {
    for (size_t i = 0; i < running_.size();) {
      int status = 0;
      const pid_t found = waitpid(running_[i].process, &status, WNOHANG);
      if (found < 0 && errno != EINTR) fail_of_system("learn how a trial has ended");
      if (found != running_[i].process) {
        ++i;
        continue;
      }
      const size_t job = running_[i].job;
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      ended(job, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
  }

  void stop() {
    for (const Child& child : running_) kill(child.process, SIGTERM);
    for (const Child& child : running_) {
      while (waitpid(child.process, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    running_.clear();
  }

 private:
  [[noreturn]] static void fail_of_system(const std::string& action) {
    fail(ErrorKind::kRuntime, "[sweep] cannot ", action, ": ", std::strerror(errno), '.');
  }

  // Only calls that are safe between fork and exec. A group of its own: Ctrl-C reaches this program
  // only, which then stops each child once.
  [[noreturn]] static void become(pid_t parent, int log, const std::vector<char*>& argv) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    const int input = open("/dev/null", O_RDONLY);
    const bool ready = getppid() == parent && input >= 0 && dup2(input, STDIN_FILENO) >= 0 &&
                       dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0;
    // This program even if its file has been replaced meanwhile.
    if (ready) execv("/proc/self/exe", argv.data());
    _exit(kNoProgram);
  }

  std::vector<Child> running_;
};

void sleep_shortly() {
  constexpr timespec kWhile = {.tv_sec = 0, .tv_nsec = 10'000'000};
  nanosleep(&kWhile, nullptr);
}

}  // namespace

int run_children(const std::vector<ChildJob>& jobs, int64_t processes,
                 const std::function<void(size_t job, int code)>& ended) {
  Children children;
  for (size_t next = 0; next < jobs.size() || children.size() > 0;) {
    if (const int signal = pending_signal(); signal != 0) {
      children.stop();
      return signal;
    }
    while (next < jobs.size() && std::cmp_less(children.size(), processes)) {
      children.start(jobs[next], next);
      ++next;
    }
    sleep_shortly();
    children.collect(ended);
  }
  return 0;
}

}  // namespace tapestry
