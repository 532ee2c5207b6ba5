// Facts about the program and its machine, for bug reports and the report of a run.
#pragma once

#include <string>

#include "apps/run/outputs/log.h"

namespace tapestry {

/// "tapestry", "commit", "build", "processor", "BLAS", "bfloat16". `commit` is that of the sources.
Facts program_facts(const std::string& commit);

/// The same, with the system and the memory of the machine.
Facts machine_facts(const std::string& commit);

}  // namespace tapestry
