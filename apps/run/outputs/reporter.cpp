#include "apps/run/outputs/reporter.h"

#include "apps/run/outputs/tensorboard.h"
#include "core/base/error.h"

namespace tapestry {
namespace {

struct ReporterKind {
  const char* name;
  std::unique_ptr<Reporter> (*make)(const ReportedRun& run);
};

constexpr ReporterKind kKinds[] = {
    {"tensorboard", [](const ReportedRun& run) -> std::unique_ptr<Reporter> {
       return std::make_unique<TensorBoard>(run);
     }}};

}  // namespace

std::unique_ptr<Reporter> make_reporter(const std::string& name, const ReportedRun& run) {
  for (const ReporterKind& kind : kKinds) {
    if (name == kind.name) return kind.make(run);
  }
  fail(ErrorKind::kConfig, "[log] nothing reports to '", name, "'.");
}

}  // namespace tapestry
