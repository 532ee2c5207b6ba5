// Manual pages, from the same table as --help and configs/README.md.
#pragma once

#include <string>
#include <vector>

#include "apps/commands/help/offered.h"

namespace tapestry {

struct ManualPage {
  std::string file;  ///< "man1/tapestry.1", below the folder man of an installation
  std::string text;  ///< for man(1)
};

/// The program's page, one for each command, and tapestry-config(5) with the keys of a config.
std::vector<ManualPage> manual_pages(const CLI::App& program);

}  // namespace tapestry
