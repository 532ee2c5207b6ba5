// Ranks that mpirun or srun started: the module libtapestry_mpi.so (mpi_module.h) as a Transport.
#pragma once

#include <memory>
#include <string>

#include "core/distributed/transport.h"

namespace tapestry {

/// True if a launcher started this process as one of several (or of an unknown number).
bool launched_with_others();

/// Opens the module, which stands beside the executable or in the installed place, and sets MPI's
/// environment variables unless the user has set them. Call it while no other thread reads the
/// environment. Throws Error(kConfig) if there is no such module.
void load_mpi();

/// Starts MPI. The calling thread makes all calls of the transport. Throws Error if MPI does not
/// start, or starts one process although the launcher started several.
std::unique_ptr<Transport> open_mpi();

}  // namespace tapestry
