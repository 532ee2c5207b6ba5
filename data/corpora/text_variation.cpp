#include "data/corpora/text_variation.h"

#include <algorithm>

#include "core/base/draws.h"
#include "core/base/error.h"

namespace tapestry {
namespace {

std::shared_ptr<const SubwordSampler> sampler_of(const Tokenizer& tokenizer,
                                                 const SubwordSampling& how) {
  return how.is_on() ? tokenizer.sampler(how) : nullptr;
}

// Placeholders, languages and other marks tell the model what to write: without one of them a
// source has another translation.
std::vector<char> marks_of(const Tokenizer& tokenizer) {
  std::vector<char> marks;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    marks.push_back(tokenizer.is_special(id) || tokenizer.special().is_language(id) ? 1 : 0);
  }
  for (const int32_t id : tokenizer.symbols()) marks[static_cast<size_t>(id)] = 1;
  return marks;
}

}  // namespace

TextVariation::TextVariation(const VariationOptions& options, const TokenizerPair& tokenizers,
                             const SideLimits& limits, uint64_t seed)
    : source_{.tokenizer = tokenizers.source,
              .sampler = sampler_of(*tokenizers.source, options.source),
              .stream = draw_key(seed, 0, "data.subwords.source").stream,
              .most = limits.source,
              .is_source = true},
      target_{.tokenizer = tokenizers.target,
              .sampler = sampler_of(*tokenizers.target, options.target),
              .stream = draw_key(seed, 0, "data.subwords.target").stream,
              .most = limits.target,
              .is_source = false},
      word_dropout_(static_cast<float>(options.word_dropout)),
      unk_(tokenizers.source->special().unk.value_or(-1)),
      changes_(options.changes),
      seed_(seed) {
  if (word_dropout_ > 0 || changes_.is_on()) source_.marks = marks_of(*tokenizers.source);
  if (changes_.is_on()) target_.marks = marks_of(*tokenizers.target);
  if (word_dropout_ > 0 && unk_ < 0) {
    fail(ErrorKind::kConfig,
         "[data] training.word_dropout needs a source tokenizer with a token for the unknown.");
  }
}

std::vector<int32_t> TextVariation::changed(const Side& side, int64_t epoch, int64_t row,
                                            std::span<const int32_t> ids) const {
  RowDraws draws(draw_key(seed_, epoch, "data.augment"), row);  // the same for both sides
  const DrawnChanges drawn(changes_, draws);
  const auto is_mark = [&](int32_t id) { return side.marks[static_cast<size_t>(id)] != 0; };
  if (!drawn.any(side.is_source) || std::ranges::any_of(ids, is_mark)) return {};
  const std::string text = side.tokenizer->decode({ids.begin(), ids.end()});
  std::vector<int32_t> now =
      side.tokenizer->encode(changed_text(text, drawn, side.is_source, draws));
  if (std::ssize(now) > side.most) now.clear();
  return now;
}

void TextVariation::sample(const Side& side, int64_t epoch, int64_t row,
                           std::span<const int32_t> ids, std::vector<int32_t>& varied) const {
  std::vector<int32_t> now;
  if (changes_.is_on()) now = changed(side, epoch, row, ids);
  if (!now.empty()) ids = now;
  if (side.sampler != nullptr) {
    RowDraws draws({seed_, static_cast<uint32_t>(epoch), side.stream}, row);
    side.sampler->sample(ids, draws, varied);
    if (std::ssize(varied) <= side.most) return;
  }
  varied.assign(ids.begin(), ids.end());
}

void TextVariation::source(int64_t epoch, int64_t row, std::span<const int32_t> ids,
                           std::vector<int32_t>& varied) const {
  sample(source_, epoch, row, ids, varied);
  if (word_dropout_ == 0) return;
  RowDraws draws(draw_key(seed_, epoch, "data.word_dropout"), row);
  for (int32_t& id : varied) {
    const bool drops = draws.short_uniform() < word_dropout_;
    if (drops && source_.marks[static_cast<size_t>(id)] == 0) id = unk_;
  }
}

void TextVariation::target(int64_t epoch, int64_t row, std::span<const int32_t> ids,
                           std::vector<int32_t>& varied) const {
  sample(target_, epoch, row, ids, varied);
}

}  // namespace tapestry
