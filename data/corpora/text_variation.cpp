#include "data/corpora/text_variation.h"

#include "core/base/error.h"
#include "data/corpora/draws.h"

namespace tapestry {
namespace {

std::shared_ptr<const SubwordSampler> sampler_of(const Tokenizer& tokenizer,
                                                 const SubwordSampling& how) {
  return how.is_on() ? tokenizer.sampler(how) : nullptr;
}

}  // namespace

TextVariation::TextVariation(const VariationOptions& options, const TokenizerPair& tokenizers,
                             const SideLimits& limits, uint64_t seed)
    : source_{sampler_of(*tokenizers.source, options.source),
              draw_key(seed, 0, "data.subwords.source").stream, limits.source},
      target_{sampler_of(*tokenizers.target, options.target),
              draw_key(seed, 0, "data.subwords.target").stream, limits.target},
      word_dropout_(static_cast<float>(options.word_dropout)),
      unk_(tokenizers.source->special().unk.value_or(-1)),
      seed_(seed) {
  if (word_dropout_ == 0 || unk_ >= 0) return;
  fail(ErrorKind::kConfig,
       "[data] training.word_dropout needs a source tokenizer with a token for the unknown.");
}

void TextVariation::sample(const Side& side, int64_t epoch, int64_t row,
                           std::span<const int32_t> ids, std::vector<int32_t>& varied) const {
  if (side.sampler != nullptr) {
    SubwordDraws draws({seed_, static_cast<uint32_t>(epoch), side.stream}, row);
    side.sampler->sample(ids, draws, varied);
    if (std::ssize(varied) <= side.most) return;
  }
  varied.assign(ids.begin(), ids.end());
}

void TextVariation::source(int64_t epoch, int64_t row, std::span<const int32_t> ids,
                           std::vector<int32_t>& varied) const {
  sample(source_, epoch, row, ids, varied);
  if (word_dropout_ == 0) return;
  SubwordDraws draws(draw_key(seed_, epoch, "data.word_dropout"), row);
  for (int32_t& id : varied) {
    if (draws.uniform() < word_dropout_) id = unk_;
  }
}

void TextVariation::target(int64_t epoch, int64_t row, std::span<const int32_t> ids,
                           std::vector<int32_t>& varied) const {
  sample(target_, epoch, row, ids, varied);
}

}  // namespace tapestry
