#include "apps/commands/answers/prefixes.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/files/utf8.h"
#include "data/tokenizers/words/placed_text.h"

namespace tapestry {
namespace {

// A search never writes an unknown token, so a forced one would leave a gap in the text.
void check_can_be_written(const Translator& models, const std::vector<int32_t>& ids,
                          const std::string& text, int64_t line) {
  const Tokenizer& tokenizer = *models.tokenizers().target;
  const auto found = models.never_written(ids);
  if (found == ids.end()) return;
  const PlacedText placed = placed_source(tokenizer, text);
  const PlacedToken& token = placed.tokens.at(static_cast<size_t>(found - ids.begin()));
  size_t begin = static_cast<size_t>(token.begin);
  begin = std::min(text.find_first_not_of(" \t", begin), begin + text.size());
  size_t end = begin;
  if (begin < text.size()) next_code_point(text, end);
  const bool unknown = *found == tokenizer.special().unk;
  fail(ErrorKind::kData, "[translate] the prefix of line ", line,
       " must be text that the model can write, got '", text, "': the vocabulary has no ",
       unknown ? concat("'", text.substr(std::min(begin, text.size()), end - begin), "'")
               : concat("text ", tokenizer.piece(*found)),
       '.');
}

}  // namespace

Prefixes::Prefixes(const std::string& path, bool in_column) : in_column_(in_column) {
  if (!path.empty()) file_.emplace(path);
}

std::string Prefixes::take(std::string& line) {
  std::string prefix;
  if (in_column_) {
    const size_t tab = line.find('\t');
    if (tab == std::string::npos) return "";
    prefix = line.substr(tab + 1, line.find('\t', tab + 1) - tab - 1);
    line.resize(tab);
  } else if (file_ && !file_->next(prefix)) {
    fail(ErrorKind::kData, "[translate] ", file_->path(), " has ", file_->line_number(),
         " lines, the input has more.");
  }
  return prefix;
}

void Prefixes::check_end() {
  std::string line;
  if (file_ && file_->next(line)) {
    fail(ErrorKind::kData, "[translate] ", file_->path(),
         " has more lines than the input, which has ", file_->line_number() - 1, '.');
  }
}

std::vector<int32_t> prefix_tokens(const Translator& models, const std::string& text,
                                   int64_t line) {
  std::vector<int32_t> ids = models.tokenizers().target->encode(text);
  check_can_be_written(models, ids, text, line);
  const int64_t most = longest_sequence(models.models()) - 1;  // eos
  if (std::ssize(ids) > most) {
    fail(ErrorKind::kData, "[translate] the prefix of line ", line, " has ", ids.size(),
         " tokens, the model writes at most ", most, '.');
  }
  return ids;
}

}  // namespace tapestry
