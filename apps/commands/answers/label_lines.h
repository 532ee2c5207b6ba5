// Lines of words in, the label of each word out: tapestry classify with a token classifier.
#pragma once

#include "apps/checkpoint/model_bundle.h"
#include "apps/commands/answers/filter.h"
#include "apps/commands/answers/line_filter.h"

namespace tapestry {

/// Answers every line: its words, which stand between white space, each with its label behind a
/// slash; or with `details` a JSON object: words, labels, probabilities, and the entities with
/// their places in the line, in characters, and the mean probability of their words. Returns the
/// exit code. Throws Error(kData) if the model labels no words.
int label_lines(ModelFiles files, const FilterArguments& arguments, bool details,
                LineFilter& filter);

}  // namespace tapestry
