#include <iostream>

#include "apps/commands/commands.h"
#include "apps/config/reference.h"
#include "apps/config/schema.h"

namespace tapestry {

int run_help(const HelpArguments& arguments) {
  if (arguments.markdown) {
    std::cout << key_reference_markdown();
  } else if (arguments.schema) {
    std::cout << config_schema();
  } else if (arguments.all) {
    std::cout << describe_all_keys();
  } else {
    std::cout << (arguments.key.empty() ? describe_sections() : describe_key(arguments.key));
  }
  return 0;
}

}  // namespace tapestry
