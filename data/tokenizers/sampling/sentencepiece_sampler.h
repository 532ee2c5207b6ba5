// Samplers of SentencePiece's models. Its own SampleEncode draws from a generator of each thread;
// these draw by Philox. Private to data/tokenizers/.
#pragma once

#include <memory>

#include "data/tokenizers/sampling/subword_sampler.h"
#include "data/tokenizers/sentencepiece_model.h"

namespace tapestry::tokenizers {

/// Of a BPE model: a merge makes any piece of two others, the one with the best score first. Throws
/// Error(kConfig) unless `how` is dropout.
std::shared_ptr<const SubwordSampler> sampler_of_merges(const SentencePieceModel& model,
                                                        const SubwordSampling& how);
/// Of a unigram model. Throws Error(kConfig) unless `how` has an alpha.
std::shared_ptr<const SubwordSampler> sampler_of_lattice(const SentencePieceModel& model,
                                                         const SubwordSampling& how);

}  // namespace tapestry::tokenizers
