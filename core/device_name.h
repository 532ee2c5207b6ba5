// Syntax of device names, checked long before the device is used.
#pragma once

#include <string>

#include "core/base/option_report.h"

namespace tapestry {

/// Reports "device" unless parse_device() understands the name; the device need not be there.
void validate_device_name(const std::string& device,
                          const OptionReport& report = OptionReport::throwing("device"));

}  // namespace tapestry
