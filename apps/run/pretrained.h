// The config of a run that may begin with another model.
#pragma once

#include <string>
#include <vector>

#include "apps/config/config.h"

namespace tapestry {

/// The config of the run, checkpoint, Hugging Face or PEFT folder.
Config config_of_pretrained(const std::string& path);

/// load_config(); a config without a `model` section gets the model of its init_from.
Config load_run_config(const ConfigSource& source, const std::vector<std::string>& overrides = {},
                       bool check_files = true);

}  // namespace tapestry
