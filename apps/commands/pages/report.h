// The HTML page about one run or several.
#pragma once

#include <string>
#include <vector>

#include "apps/commands/pages/run_record.h"

namespace tapestry {

/// The name of the report that a training leaves in its folder.
inline constexpr const char* kReportFile = "report.html";

/// The page as HTML.
std::string report_html(std::vector<RunRecord> runs);

/// Reads the runs, reports damage in them on stderr, and writes the page. Throws as read_run() and
/// OutputFile do.
void write_report(const std::vector<std::string>& folders, const std::string& output);

}  // namespace tapestry
