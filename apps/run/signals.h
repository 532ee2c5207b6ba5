// SIGINT, SIGTERM, SIGHUP and SIGUSR1 (which mpirun passes on, and waits) set a flag, which the
// training loop checks.
#pragma once

#include <functional>

namespace tapestry {

/// After this call these signals set the flag instead of ending the process. A second one, except
/// SIGUSR1, ends it at once, with exit code 128 + its number, and without saving. SIGHUP stays
/// ignored if it was (nohup), and a closed reader of stdout or stderr ends nothing. A mapped file
/// that is cut ends the process with the exit code of bad data, and the file's name.
void install_signal_handlers();

/// Whether the first signal ends the process, too, with a message on stderr: while a training reads
/// its data there is nothing to save, and a reader cannot look at a flag.
void end_on_signal(bool at_once);

/// For a program that has handlers of its own, as an interpreter has: while it lives,
/// pending_signal() asks this function on the calling thread, and the two above do nothing.
class SignalsFrom {
 public:
  explicit SignalsFrom(std::function<int()> pending);
  ~SignalsFrom();
  SignalsFrom(const SignalsFrom&) = delete;
  SignalsFrom& operator=(const SignalsFrom&) = delete;
};

/// The signal that asked the process to stop (the first one), or 0.
int pending_signal();
/// "SIGTERM"
const char* name_of_signal(int signal);

}  // namespace tapestry
