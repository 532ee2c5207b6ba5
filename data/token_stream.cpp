#include "data/token_stream.h"

#include <limits>

#include "core/error.h"
#include "data/encode_corpus.h"
#include "data/token_cache.h"
#include "data/utf8.h"

namespace tapestry {
namespace {

TokenStream encode_stream(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer) {
  const LengthRule rule{std::numeric_limits<int64_t>::max(), "error", 0};
  std::vector<int32_t> ids;
  StreamFacts facts;
  for (const CorpusSpec& spec : specs) {
    facts.counts.add(encode_corpus(spec, tokenizer, nullptr, rule, [&](const EncodedPair& pair) {
      if (facts.documents++ > 0) ids.push_back(kEosId);
      ids.insert(ids.end(), pair.source.begin(), pair.source.end());
      facts.characters += count_code_points(pair.text.source);
    }));
  }
  return TokenStream(std::move(ids), std::move(facts));
}

}  // namespace

TokenStream::TokenStream(std::vector<int32_t> ids, StreamFacts facts) : facts_(std::move(facts)) {
  const auto owner = std::make_shared<const std::vector<int32_t>>(std::move(ids));
  tokens_ = *owner;
  owner_ = owner;
}

TokenStream load_token_stream(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                              const std::string& cache_path) {
  check_not_empty(specs);
  for (const CorpusSpec& spec : specs) spec.validate();
  if (cache_path.empty()) return encode_stream(specs, tokenizer);
  const TokenCache cache(cache_path, specs, tokenizer);
  if (auto found = cache.load()) return *std::move(found);
  return cache.store(encode_stream(specs, tokenizer));
}

}  // namespace tapestry
