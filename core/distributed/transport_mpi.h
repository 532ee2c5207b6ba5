// Ranks that mpirun or srun started: the module libtapestry_mpi.so (mpi_module.h) as a Transport.
#pragma once

#include <memory>
#include <string>

#include "core/distributed/transport.h"

namespace tapestry {

/// Whether a launcher started this process as one of several (or of an unknown number).
bool launched_with_others();

/// Opens the module, which stands beside the executable or where it was installed, and sets the
/// environment that MPI reads when it starts, but for what the user has set. Call it while no other
/// thread reads the environment. Throws Error(kConfig) when there is no such module.
void load_mpi();

/// Starts MPI. The thread that calls it makes all calls of the transport. Throws Error when MPI
/// does not start, or starts alone where the launcher started several.
std::unique_ptr<Transport> open_mpi();

}  // namespace tapestry
