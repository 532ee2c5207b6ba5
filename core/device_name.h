// What a device may be called, for whoever reads the name long before it is used.
#pragma once

#include <string>

#include "core/option_report.h"

namespace tapestry {

/// Reports "device" unless parse_device() understands the name; the device need not be there.
void validate_device_name(const std::string& device,
                          const OptionReport& report = OptionReport::throwing("device"));

/// The GPU that parse_device() takes for "cuda" and "auto", 0 unless this was called: of several
/// ranks on a machine each has one of its own.
void set_default_gpu(int index);

}  // namespace tapestry
