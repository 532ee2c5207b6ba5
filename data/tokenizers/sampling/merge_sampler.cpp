#include "data/tokenizers/sampling/merge_sampler.h"

namespace tapestry::tokenizers {

void MergeSampler::sample(std::span<const int32_t> ids, RowDraws& draws,
                          std::vector<int32_t>& sampled) const {
  sampled.clear();
  std::vector<int32_t> word;
  const auto finish_word = [&] {
    merger_.apply_with_dropout(word, p_, draws);
    sampled.insert(sampled.end(), word.begin(), word.end());
    word.clear();
  };
  for (const int32_t id : ids) {
    const std::vector<int32_t>& characters = pieces_.characters[static_cast<size_t>(id)];
    if (characters.empty()) {
      finish_word();
      sampled.push_back(id);
      continue;
    }
    if (pieces_.begins_word[static_cast<size_t>(id)] != 0) finish_word();
    word.insert(word.end(), characters.begin(), characters.end());
  }
  finish_word();
}

}  // namespace tapestry::tokenizers
