// Lines of text in, a number for each out: tapestry predict with a text_regression.
#pragma once

#include "apps/checkpoint/model_bundle.h"
#include "apps/commands/answers/filter.h"
#include "apps/commands/answers/line_filter.h"

namespace tapestry {

/// Answers every line with its number; an empty one with an empty line. Returns the exit code.
/// Throws Error(kData) if the model rates no texts.
int rate_lines(ModelFiles files, const FilterArguments& arguments, LineFilter& filter);

}  // namespace tapestry
