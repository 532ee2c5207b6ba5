// tapestry evaluate: scores of files of translations, or of a model on data.
#include "apps/commands/commands.h"
#include "core/error.h"
#include "core/parallel.h"

namespace tapestry {

int run_evaluate(const EvaluateArguments& arguments) {
  if (!arguments.model.empty()) return evaluate_model(arguments);
  if (arguments.translations.hypotheses.empty()) {
    fail(ErrorKind::kConfig,
         "[evaluate] give --hypothesis and --reference, or --model and --data (--text, --images, "
         "--squad and --jsonl are short for it).");
  }
  set_num_threads(arguments.compute.threads);
  return evaluate_translations(arguments.translations, arguments.json);
}

}  // namespace tapestry
