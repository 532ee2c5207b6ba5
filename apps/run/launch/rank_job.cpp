#include "apps/run/launch/rank_job.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "apps/run/signals.h"
#include "core/base/clock.h"
#include "core/base/error.h"

namespace tapestry {
namespace {

constexpr int kNoProgram = 127;  // a shell's code for it
constexpr int kPauseMilliseconds = 20;
constexpr size_t kKeptBytes = size_t{1} << 16;
// The longest that ranks may live without their launcher, which ends them within a second or two.
constexpr double kOrphanSeconds = 5;

[[noreturn]] void fail_of_system(const char* action) {
  fail(ErrorKind::kRuntime, "[launch] cannot ", action, ": ", std::strerror(errno), '.');
}

/// Texts, and pointers to them as execve() wants them.
class Words {
 public:
  explicit Words(std::vector<std::string> words) : words_(std::move(words)) {
    for (std::string& word : words_) pointers_.push_back(word.data());
    pointers_.push_back(nullptr);
  }
  char* const* data() const { return pointers_.data(); }

 private:
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
};

Words environment_of(const RankJob& job) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::ranges::none_of(job.added, [&](const auto& added) { return added.first == name; })) {
      all.emplace_back(text);
    }
  }
  for (const auto& [name, value] : job.added) all.push_back(concat(name, '=', value));
  for (const auto& [name, value] : job.defaults) {
    if (getenv(name.c_str()) == nullptr) all.push_back(concat(name, '=', value));
  }
  return Words(std::move(all));
}

// Only calls that are safe between fork and exec. A group of its own: Ctrl-C reaches this program
// only, which then asks the ranks to save.
[[noreturn]] void become(pid_t parent, int messages, char* const* argv, char* const* variables) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int input = open("/dev/null", O_RDONLY);
  const bool ready = getppid() == parent && input >= 0 && dup2(input, STDIN_FILENO) >= 0 &&
                     dup2(messages, STDERR_FILENO) >= 0;
  if (ready) execvpe(argv[0], argv, variables);
  _exit(kNoProgram);
}

struct LivingProcess {
  pid_t id = 0, parent = 0;
  char state = 0;
};

std::vector<LivingProcess> all_processes() {
  std::vector<LivingProcess> all;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
    const std::string name = entry.path().filename();
    LivingProcess process;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process.id);
    if (error != std::errc() || *end != '\0') continue;
    std::string status;
    std::getline(std::ifstream(entry.path() / "stat"), status);
    const size_t after_name = status.rfind(')');
    if (after_name == std::string::npos) continue;
    if (std::sscanf(status.c_str() + after_name + 1, " %c %d", &process.state, &process.parent) ==
        2) {
      all.push_back(process);
    }
  }
  return all;
}

// Processes whose parent died have this one as their parent then (PR_SET_CHILD_SUBREAPER).
std::vector<pid_t> own_children() {
  std::vector<pid_t> children;
  for (const LivingProcess& process : all_processes()) {
    if (process.parent == getpid()) children.push_back(process.id);
  }
  return children;
}

/// Whether this program runs below that process.
bool has_rank(pid_t above, const std::vector<LivingProcess>& all) {
  return std::ranges::any_of(all, [&](const LivingProcess& process) {
    if (process.parent != above || process.state == 'Z') return false;
    std::error_code unreadable;
    return std::filesystem::equivalent(concat("/proc/", process.id, "/exe"), "/proc/self/exe",
                                       unreadable) ||
           has_rank(process.id, all);
  });
}

/// The process of a job, its stderr, and what it leaves behind.
class Process {
 public:
  explicit Process(const RankJob& job) {
    // A parent that ignores SIGCHLD leaves that to its children: then the system forgets how theirs
    // ended before anybody can ask.
    std::signal(SIGCHLD, SIG_DFL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const Words arguments(job.command), variables = environment_of(job);
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) fail_of_system("make a pipe");
    const pid_t parent = getpid();
    process_ = fork();
    if (process_ == 0) become(parent, ends[1], arguments.data(), variables.data());
    const int reason = errno;
    close(ends[1]);
    from_ = ends[0];
    if (process_ >= 0) return;
    close(from_);
    errno = reason;
    fail_of_system("start another process");
  }
  ~Process() {
    if (!ended_) kill(process_, SIGTERM);
    while (!ended_) collect(0);
    end_orphans();
    close_messages();
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  bool has_ended() const { return ended_; }
  int code() const { return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_); }
  void ask_to_save() const { kill(process_, SIGUSR1); }

  /// Kills it if it has had no rank for that many seconds. Looks a few times in them.
  void end_without_ranks(double patience) {
    const double now = steady_seconds();
    if (now < looked_ + patience / 10) return;
    looked_ = now;
    if (has_rank(process_, all_processes())) had_rank_ = now;
    if (now > had_rank_ + patience) kill(process_, SIGKILL);
  }

  /// Looks once for a child that has ended (`options` of waitpid). False if there is none.
  bool collect(int options) {
    int status = 0;
    const pid_t found = waitpid(-1, &status, options);
    if (found != process_) return found > 0;
    status_ = status;
    ended_ = true;
    return true;
  }

  /// Copies what has come until now, waiting shortly if that is nothing. False at the end.
  bool copy(std::string& messages) {
    pollfd asked = {.fd = from_, .events = POLLIN, .revents = 0};
    if (poll(&asked, 1, kPauseMilliseconds) <= 0) return false;
    std::array<char, 4096> text{};
    const ssize_t bytes = read(from_, text.data(), text.size());
    if (bytes == 0) close_messages();
    if (bytes <= 0) return false;
    const auto count = static_cast<size_t>(bytes);
    // If stderr is gone, the exit code still shows how it ended.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), count);
    messages.append(text.data(), count);
    if (messages.size() > 2 * kKeptBytes) messages.erase(0, messages.size() - kKeptBytes);
    return true;
  }

  /// Waits for ranks whose launcher was killed, which would write into the run folder still.
  void end_orphans() {
    const double begin = steady_seconds();
    for (;;) {
      while (collect(WNOHANG)) {
      }
      const std::vector<pid_t> left = own_children();
      if (left.empty()) return;
      if (steady_seconds() > begin + kOrphanSeconds) {
        for (const pid_t child : left) kill(child, SIGKILL);
      }
      poll(nullptr, 0, kPauseMilliseconds);
    }
  }

 private:
  void close_messages() {
    if (from_ >= 0) close(from_);
    from_ = -1;  // which poll() passes over
  }

  pid_t process_ = -1;
  int from_ = -1, status_ = 0;
  bool ended_ = false;
  double had_rank_ = steady_seconds(), looked_ = had_rank_;
};

}  // namespace

RankJobEnd run_rank_job(const RankJob& job) {
  Process process(job);
  RankJobEnd end;
  while (!process.has_ended()) {
    if (end.signal == 0 && (end.signal = pending_signal()) != 0) process.ask_to_save();
    process.copy(end.messages);
    while (process.collect(WNOHANG)) {
    }
    if (!process.has_ended()) process.end_without_ranks(job.patience);
  }
  process.end_orphans();
  while (process.copy(end.messages)) {
  }
  end.code = process.code();
  if (end.code == kNoProgram) {
    fail(ErrorKind::kConfig, "[launch] cannot run ", job.command.front(), '.');
  }
  return end;
}

}  // namespace tapestry
