// Every command, in the order of the help.
#include <algorithm>

#include "apps/commands/command.h"
#include "core/base/nearest_name.h"
#include "core/base/text.h"

namespace tapestry {

extern const Command kTrain, kTranslate, kGenerate, kFillMask, kClassify, kAnswer, kEmbed, kPredict,
    kScore, kRescore, kEvaluate, kSweep, kDistil, kShortlist, kGradcheck, kPlan, kReplay, kInspect,
    kReport, kWatch, kAverage, kImport, kExport, kBench, kServe, kHelp;

std::span<const Command* const> commands() {
  static constexpr const Command* kCommands[] = {
      &kTrain,     &kTranslate, &kGenerate, &kFillMask, &kClassify, &kAnswer, &kEmbed,
      &kPredict,   &kScore,     &kRescore,  &kEvaluate, &kSweep,    &kDistil, &kShortlist,
      &kGradcheck, &kPlan,      &kReplay,   &kInspect,  &kReport,   &kWatch,  &kAverage,
      &kImport,    &kExport,    &kBench,    &kServe,    &kHelp};
  return kCommands;
}

std::string suggestion(const std::string& word, std::vector<std::string> names,
                       const char* dashes) {
  for (std::string& name : names) std::replace(name.begin(), name.end(), '-', '_');
  std::string nearest = nearest_name(word, names);
  std::replace(nearest.begin(), nearest.end(), '_', '-');
  return nearest.empty() ? "" : concat(" did you mean '", dashes, nearest, "'?");
}

}  // namespace tapestry
