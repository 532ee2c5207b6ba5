// SIGINT, SIGTERM and SIGUSR1 (which mpirun passes on, and waits) set a flag, which the training
// loop checks between two updates.
#pragma once

namespace tapestry {

/// After this call these signals set the flag instead of ending the process. A second SIGINT
/// ends it at once, with exit code 130 and without saving.
void install_signal_handlers();

/// The signal that asked the process to stop (the first one), or 0.
int pending_signal();
/// "SIGTERM"
const char* name_of_signal(int signal);

}  // namespace tapestry
