#include "core/profile.h"

namespace tapestry {

const char* name_of(Part part) {
  switch (part) {
    case Part::kProducts:
      return "products";
    case Part::kAttention:
      return "attention";
    case Part::kNorms:
      return "norms";
    case Part::kClassifier:
      return "classifier";
    case Part::kOptimizer:
      return "optimizer";
    case Part::kData:
      return "data";
  }
  return "";
}

}  // namespace tapestry
