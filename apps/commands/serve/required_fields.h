// The fields of a request that say what its translations must contain.
#pragma once

#include <memory>
#include <vector>

#include "apps/commands/serve/endpoints.h"

namespace tapestry {

/// `fields` and those that required_texts() reads.
std::vector<Field> with_required_fields(std::vector<Field> fields);

/// What translations of `model`, which must outlive it, must contain; null if the call asks for
/// nothing. Throws HttpError(400) and Error as RequiredTexts does.
std::unique_ptr<RequiredTexts> required_texts(const ServedModel& model, const Call& call);

}  // namespace tapestry
