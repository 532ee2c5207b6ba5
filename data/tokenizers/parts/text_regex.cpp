#include "data/tokenizers/parts/text_regex.h"

#include <oniguruma.h>

#include <mutex>

#include "core/base/error.h"
#include "data/files/utf8.h"

namespace tapestry::tokenizers {
namespace {

const OnigUChar* bytes_of(const char* text) { return reinterpret_cast<const OnigUChar*>(text); }

struct RegionFree {
  void operator()(OnigRegion* region) const { onig_region_free(region, 1); }
};

}  // namespace

void TextRegex::Free::operator()(void* regex) const { onig_free(static_cast<regex_t*>(regex)); }

TextRegex::TextRegex(const std::string& pattern, const std::string& place) {
  static std::once_flag once;
  std::call_once(once, [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
  });
  regex_t* regex = nullptr;
  OnigErrorInfo info;
  const int status =
      onig_new(&regex, bytes_of(pattern.data()), bytes_of(pattern.data() + pattern.size()),
               ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_RUBY, &info);
  if (status != ONIG_NORMAL) {
    OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
    onig_error_code_to_str(message, status, &info);
    fail(ErrorKind::kData, "[tokenizer] ", place, " has the expression '", pattern,
         "', which cannot be used: ", reinterpret_cast<const char*>(message), '.');
  }
  regex_.reset(regex);
}

void TextRegex::find_all(std::string_view text, std::vector<ByteRange>& matches) const {
  matches.clear();
  thread_local const std::unique_ptr<OnigRegion, RegionFree> region(onig_region_new());
  auto* const regex = static_cast<regex_t*>(regex_.get());
  const OnigUChar* const begin = bytes_of(text.data());
  const OnigUChar* const end = begin + text.size();
  size_t before = std::string_view::npos;  // end of the match before
  for (size_t at = 0; at <= text.size() && !text.empty();) {
    const int found =
        onig_search(regex, begin, end, begin + at, end, region.get(), ONIG_OPTION_NONE);
    if (found == ONIG_MISMATCH) return;
    check(found >= 0, "tokenizer", "the regular expression failed with code ", found, '.');
    const auto first = static_cast<size_t>(region->beg[0]);
    const auto last = static_cast<size_t>(region->end[0]);
    if (last > first || last != before) {
      matches.emplace_back(first, last);
      at = before = last;
    } else if (at < text.size()) {
      next_code_point(text, at);
    } else {
      return;
    }
  }
}

}  // namespace tapestry::tokenizers
