// SIGINT, SIGTERM, SIGHUP and SIGUSR1 (which mpirun passes on, and waits) set a flag, which the
// training loop checks.
#pragma once

namespace tapestry {

/// After this call these signals set the flag instead of ending the process. A second one, but
/// SIGUSR1, ends it at once, with exit code 128 and its number, and without saving. SIGHUP stays
/// ignored where it was (nohup), and a reader of stdout or stderr that goes away ends nothing. A
/// mapped file that somebody cuts ends the process with the exit code of bad data, and its name.
void install_signal_handlers();

/// Whether the first of them ends the process, too, and says so on stderr: while a training reads
/// its data there is nothing to save, and who reads cannot look at a flag.
void end_on_signal(bool at_once);

/// The signal that asked the process to stop (the first one), or 0.
int pending_signal();
/// "SIGTERM"
const char* name_of_signal(int signal);

}  // namespace tapestry
