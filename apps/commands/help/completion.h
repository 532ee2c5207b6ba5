// Scripts by which shells complete commands, options, keys of a config and their choices.
#pragma once

#include <span>
#include <string>

#include "apps/commands/help/offered.h"

namespace tapestry {

struct Shell {
  const char* name;
  const char* file;  ///< of its script, below the folder share of an installation
  std::string (*script)(const CLI::App& program);
};

std::span<const Shell> shells();

}  // namespace tapestry
