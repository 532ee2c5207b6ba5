#pragma once

namespace tapestry {

/// From now on the first SIGINT or SIGTERM is remembered instead of ending the process; a second SIGINT
/// ends it at once.
void install_signal_handlers();

/// The signal that arrived since, or 0.
int pending_signal();

}  // namespace tapestry
