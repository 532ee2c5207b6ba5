// SIGINT and SIGTERM as a flag that a training loop asks for between two updates.
#pragma once

namespace tapestry {

/// From here on SIGINT and SIGTERM set the flag instead of ending the process. A second SIGINT ends
/// it at once, with exit code 130 and without saving.
void install_signal_handlers();

/// The signal that asked the process to stop (the first one), or 0.
int pending_signal();

}  // namespace tapestry
