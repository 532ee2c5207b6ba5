#include "apps/commands/serve/required_fields.h"

#include <algorithm>
#include <iterator>

#include "apps/commands/serve/http_error.h"
#include "core/base/text.h"

namespace tapestry {

std::vector<Field> with_required_fields(std::vector<Field> fields) {
  const Field more[] = {
      {"terms", FieldType::kTextsByName,
       "{term: translation, ...}: where a line has the term as a whole word, its translation has "
       "this text"},
      {"terms_mode", FieldType::kText,
       "hard (the default), or soft for models that learnt from lines with <term>, <means> and "
       "</term>"},
      {"keep", FieldType::kTextOrTexts,
       "texts that come out as they went in: urls, emails, numbers, placeholders, symbols"}};
  fields.insert(fields.end(), std::begin(more), std::end(more));
  return fields;
}

std::unique_ptr<RequiredTexts> required_texts(const ServedModel& model, const Call& call) {
  RequiredTextOptions options{.terms_mode = call.text("terms_mode", "hard"),
                              .keep = call.texts("keep")};
  if (std::ranges::count(RequiredTextOptions::kModes, options.terms_mode) == 0) {
    refuse(400, "the field 'terms_mode' must be one of ", join(RequiredTextOptions::kModes, ", "),
           ", got '", options.terms_mode, "'.");
  }
  for (const std::string& kind : options.keep) {
    // An expression of a stranger could take hours.
    if (kind.starts_with('/')) {
      refuse(400, "the field 'keep' takes no regular expressions, got '", kind, "'.");
    }
  }
  Terms terms;
  if (call.has("terms")) {
    for (const auto& [term, translation] : call.body.at("terms").items()) {
      terms.add({term, translation.get<std::string>(), "the field 'terms'"});
    }
  }
  if (terms.entries().empty() && options.keep.empty()) return nullptr;
  return std::make_unique<RequiredTexts>(std::move(terms), options, model.pairs(),
                                         model.config().generation);
}

}  // namespace tapestry
