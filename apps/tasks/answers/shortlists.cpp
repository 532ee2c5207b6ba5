#include "apps/tasks/answers/shortlists.h"

#include <iostream>
#include <sstream>

#include "data/lexicon/lexicon_file.h"

namespace tapestry {

Shortlist read_shortlist(const SearchOptions& options, const TokenizerPair& tokenizers) {
  const LexiconFile file = read_lexicon(options.shortlist, tokenizers);
  if (file.unknown > 0) {
    std::cerr << concat("warning: ", file.unknown, " of ", file.lines, " lines of ",
                        options.shortlist, " have tokens that the model's vocabulary lacks, the ",
                        "first is ", file.first_unknown, '\n');
  }
  return make_shortlist(file.lexicon, options.shortlist_size, tokenizers);
}

std::string vmap_of(const SearchOptions& options, const TokenizerPair& tokenizers) {
  std::ostringstream text;
  write_vmap(read_shortlist(options, tokenizers), tokenizers, tokenizers.shared(), text);
  return text.str();
}

Shortlist make_shortlist(const Lexicon& lexicon, int64_t size, const TokenizerPair& tokenizers) {
  const PairRows rows(tokenizers);
  ShortlistOptions options{.size = size,
                           .target_tokens = tokenizers.target->vocab_size(),
                           .one_vocabulary = tokenizers.shared()};
  const auto always = [&](const std::vector<int32_t>& tokens) {
    // A model may have more rows than its tokenizer has tokens, which no search writes.
    for (const int32_t token : tokens) {
      if (token >= 0 && token < options.target_tokens) options.always.push_back(token);
    }
  };
  always({rows.eos, rows.start});
  always(rows.more_ends);
  always(rows.banned);
  always(rows.target.before);
  return Shortlist(lexicon, std::move(options));
}

}  // namespace tapestry
