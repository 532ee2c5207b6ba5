// What `evaluate` measures a model on, by name.
#pragma once

#include <string>
#include <vector>

#include "apps/config/config.h"

namespace tapestry {

/// `data` is "train", "valid" or "test" (of the config), a file whose ending tells what it holds,
/// or keys as of data.train ("source=FILE", "target=FILE"). Throws Error(kConfig) for no data, a
/// key that comes twice, and as read_corpus().
std::vector<CorpusSpec> corpora_to_measure(const Config& config,
                                           const std::vector<std::string>& data);
/// The endings that it knows: ".tsv, .csv, ..."
std::string known_data_endings();

}  // namespace tapestry
