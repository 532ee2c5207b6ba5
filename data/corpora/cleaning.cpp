#include "data/corpora/cleaning.h"

#include <unicode/uchar.h>
#include <unicode/uscript.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

// Of a name or a code of four letters; UCHAR_INVALID_CODE if there is none.
int script_of(const std::string& name) {
  return u_getPropertyValueEnum(UCHAR_SCRIPT, name.c_str());
}

std::vector<int> scripts_of(const std::vector<std::string>& names) {
  std::vector<int> scripts;
  for (const std::string& name : names) {
    scripts.push_back(script_of(name));
    if (scripts.back() == UCHAR_INVALID_CODE) {
      fail(ErrorKind::kConfig, "[data] Unicode has no script '", name, "'.");
    }
  }
  return scripts;
}

// The share of the letters of `text` that are of the scripts, or may be of any; 1 without letters.
double share_of(const std::string& text, const std::vector<int>& scripts) {
  int64_t letters = 0, own = 0;
  for (size_t at = 0; at < text.size();) {
    const auto point = static_cast<UChar32>(next_code_point(text, at));
    if (!u_isalpha(point)) continue;
    ++letters;
    own += std::ranges::any_of(scripts, [point](int script) {
      return uscript_hasScript(point, static_cast<UScriptCode>(script)) != 0;
    });
  }
  return letters == 0 ? 1 : static_cast<double>(own) / static_cast<double>(letters);
}

uint64_t hash_of(const std::string& text, uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

}  // namespace

bool CleaningOptions::is_on() const {
  return max_ratio > 0 || deduplicate != "none" || drop_copies || !source_script.empty() ||
         !target_script.empty();
}

void CleaningOptions::validate(const OptionReport& report) const {
  report.expect(max_ratio == 0 || max_ratio >= 1, "max_ratio", "must be 0 or at least 1, got ",
                max_ratio, '.');
  const auto check_scripts = [&](const char* key, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      report.expect(script_of(name) != UCHAR_INVALID_CODE, key,
                    "must have names of scripts in Unicode, such as Latin, Cyrillic or Han, got '",
                    name, "'.");
    }
  };
  check_scripts("source_script", source_script);
  check_scripts("target_script", target_script);
}

Cleaning::Cleaning(const CleaningOptions& options, std::shared_ptr<SeenTexts> seen)
    : options_(options),
      source_scripts_(scripts_of(options.source_script)),
      target_scripts_(scripts_of(options.target_script)),
      seen_(std::move(seen)) {}

bool Cleaning::is_new(const std::string& source, const std::string& target) {
  const std::string& by = options_.deduplicate;
  if (by == "none") return true;
  uint64_t hash = by == "target" ? 0 : hash_of(source, 1);
  if (by != "source") hash = hash_of(target, hash + 2);
  return seen_->insert(hash).second;
}

std::optional<Cleaning::Finding> Cleaning::operator()(const std::string& source,
                                                      const std::string& target) {
  if (options_.drop_copies && strip(source) == strip(target)) return Finding{Drop::kCopy};
  if (options_.max_ratio > 0) {
    const int64_t a = count_code_points(source), b = count_code_points(target);
    if (static_cast<double>(std::max(a, b)) >
        options_.max_ratio * static_cast<double>(std::min(a, b))) {
      return Finding{Drop::kRatio, concat(a, " and ", b, " characters")};
    }
  }
  const auto other_script = [&](const char* side, const std::string& text,
                                const std::vector<int>& scripts) -> std::optional<Finding> {
    if (scripts.empty()) return std::nullopt;
    const double share = share_of(text, scripts);
    if (share >= options_.script_share) return std::nullopt;
    return Finding{Drop::kScript, concat(std::lround(100 * share), " % of the ", side,
                                         "'s letters are of its script")};
  };
  if (auto found = other_script("source", source, source_scripts_)) return found;
  if (auto found = other_script("target", target, target_scripts_)) return found;
  // Last: a pair that is left out for another reason has not come before.
  if (!is_new(source, target)) return Finding{Drop::kDuplicate};
  return std::nullopt;
}

}  // namespace tapestry
