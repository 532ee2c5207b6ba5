#include "apps/run/sweep/space.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>

#include "apps/config/key_families.h"
#include "apps/config/tree.h"
#include "core/base/error.h"
#include "core/base/philox.h"
#include "core/base/text.h"

namespace tapestry {
namespace {

constexpr int64_t kMostAttempts = 10000;  // to draw a trial that is not there yet
constexpr double kMostWhole = 0x1p53;     // a double counts no further

bool is_whole(double value) { return value == std::floor(value) && std::abs(value) <= kMostWhole; }

// The type of the key in any task: tasks agree on it.
bool is_integer_key(const std::string& name) {
  const auto counts = [&](const KeyReading& reading) {
    const ConfigKey* const key = find_key(reading, name);
    return key != nullptr && key->type == "integer";
  };
  return std::ranges::any_of(key_families(), [&](const KeyFamily& family) {
    return counts(family.base) || std::ranges::any_of(family.variants, [&](const KeyVariant& one) {
             return counts(one.reading);
           });
  });
}

/// The values of a list at the commas outside brackets, braces and quotes.
std::vector<std::string> split_values(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      values.emplace_back();
      continue;
    }
    values.back() += c;
  }
  for (std::string& value : values) {
    const size_t first = value.find_first_not_of(' ');
    value = first == std::string::npos
                ? ""
                : value.substr(first, value.find_last_not_of(' ') - first + 1);
  }
  return values;
}

/// Collects what is wrong with all overrides.
class SpaceReader {
 public:
  SweepSpace read(const std::vector<std::string>& overrides) {
    for (const std::string& text : overrides) read(text);
    if (problems_.empty()) return std::move(space_);
    fail(ErrorKind::kConfig, join(problems_, "\n"));
  }

 private:
  void read(const std::string& text) {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos) {
      complain(text, "expected KEY=LOW..HIGH, KEY=A,B or KEY=VALUE");
      return;
    }
    const std::string key = text.substr(0, equals), value = text.substr(equals + 1);
    if (!keys_.insert(key).second) complain(text, concat("'", key, "' is given twice"));
    if (read_range(text, key, value)) return;
    const std::vector<std::string> choices = split_values(value);
    if (choices.size() == 1) {
      space_.fixed.push_back(text);
      return;
    }
    std::set<std::string> seen;
    for (const std::string& choice : choices) {
      if (choice.empty()) complain(text, "a value of the list is empty");
      if (!seen.insert(choice).second) complain(text, concat('\'', choice, "' is there twice"));
    }
    space_.axes.push_back({.key = key, .choices = choices});
  }

  // True if it was meant as a range. A path such as ../data/a.txt is none: no number stands beside
  // its dots.
  bool read_range(const std::string& text, const std::string& key, std::string value) {
    const size_t dots = value.find("..");
    if (dots == std::string::npos) return false;
    const std::string low = value.substr(0, dots);
    std::string high = value.substr(dots + 2), how;
    if (const size_t colon = high.find(':'); colon != std::string::npos) {
      how = high.substr(colon + 1);
      high.resize(colon);
    }
    SweepRange range;
    const bool has_low = parse_yaml_double(low, range.low);
    const bool has_high = parse_yaml_double(high, range.high);
    if (!has_low && !has_high && how != "log") return false;
    if (high.starts_with('.')) {  // 1e-4...1e-1 does not mean to 0.01
      complain(text, concat("three dots are no range; if '", high, "' is meant, write 0", high));
      return true;
    }
    range.log = how == "log";
    range.whole = is_integer_key(key);
    const std::string problem = !has_low    ? concat("'", low, "' is no number")
                                : !has_high ? concat("'", high, "' is no number")
                                            : problem_of(range, how);
    if (!problem.empty()) complain(text, problem);
    space_.axes.push_back({.key = key, .range = range});
    return true;
  }

  static std::string problem_of(const SweepRange& range, const std::string& how) {
    if (!how.empty() && how != "log") {
      return concat("expected LOW..HIGH or LOW..HIGH:log, got ':", how, "'");
    }
    if (!std::isfinite(range.low) || !std::isfinite(range.high) || !(range.low < range.high)) {
      return concat("expected a range LOW..HIGH with LOW < HIGH, got ", shortest(range.low),
                    " and ", shortest(range.high));
    }
    if (range.log && range.low <= 0) {
      return concat("a range with :log begins above 0, got ", shortest(range.low));
    }
    if (range.whole && !(is_whole(range.low) && is_whole(range.high))) {
      return "this key takes integers, so a range of it begins and ends with one";
    }
    return "";
  }

  void complain(const std::string& text, const std::string& problem) {
    problems_.push_back(concat("command line: ", text, ": ", problem, '.'));
  }

  SweepSpace space_;
  std::set<std::string> keys_;
  std::vector<std::string> problems_;
};

// Digits that tell about 10000 places of the range apart, and at least four: a rate is no finer.
int digits_of(const SweepRange& range, double value) {
  if (value == 0) return 4;
  const auto magnitude = [](double of) { return std::floor(std::log10(std::abs(of))); };
  return static_cast<int>(
      std::clamp(magnitude(value) - magnitude(range.high - range.low) + 4, 4.0, 17.0));
}

// The value at `place` of [0, 1): linear, or with :log the same share for each factor. Of a whole
// range each integer n has the places from n to n + 1.
std::string value_at(const SweepRange& range, double place) {
  const double top = range.whole ? range.high + 1 : range.high;
  const double value =
      range.log ? std::exp(std::log(range.low) + place * (std::log(top) - std::log(range.low)))
                : range.low + place * (top - range.low);
  if (range.whole) {  // never 1e+05, which is no integer to the config's reader
    return concat(static_cast<int64_t>(std::clamp(std::floor(value), range.low, range.high)));
  }
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.*g", digits_of(range, value), value);
  double rounded = 0;
  parse_yaml_double(digits, rounded);
  return shortest(std::clamp(rounded, range.low, range.high));
}

std::string draw_value(const SweepAxis& axis, const PhiloxKey& key, uint64_t attempt) {
  if (!axis.range) return axis.choices[philox_below(key, attempt, axis.choices.size())];
  const Philox4 bits = philox(key, attempt);
  return value_at(*axis.range, to_uniform(bits.v[0], bits.v[1]));
}

// The cell of a grid whose last axis changes fastest.
std::vector<std::string> cell_of(const std::vector<SweepAxis>& axes, int64_t cell) {
  std::vector<std::string> overrides(axes.size());
  for (size_t i = axes.size(); i-- > 0;) {
    const int64_t count = std::ssize(axes[i].choices);
    overrides[i] = concat(axes[i].key, '=', axes[i].choices[static_cast<size_t>(cell % count)]);
    cell /= count;
  }
  return overrides;
}

// Cells of the grid; so many that nobody trains them all count as the most.
int64_t grid_size(const std::vector<SweepAxis>& axes) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t cells = 1;
  for (const SweepAxis& axis : axes) cells = std::min(kMost, cells * std::ssize(axis.choices));
  return cells;
}

std::vector<std::string> draw_trial(const SweepSpace& space, const PhiloxKey& trial,
                                    uint64_t attempt) {
  std::vector<std::string> overrides;
  for (const SweepAxis& axis : space.axes) {
    const uint32_t stream = stream_of(axis.key.data(), axis.key.size());
    overrides.push_back(
        concat(axis.key, '=', draw_value(axis, {trial.seed, trial.step, stream}, attempt)));
  }
  return overrides;
}

}  // namespace

SweepSpace parse_sweep_space(const std::vector<std::string>& overrides) {
  return SpaceReader().read(overrides);
}

SweepTrials draw_trials(const SweepSpace& space, int64_t count, uint64_t seed) {
  const bool has_range =
      std::ranges::any_of(space.axes, [](const SweepAxis& axis) { return axis.range.has_value(); });
  if (has_range && count == 0) {
    fail(ErrorKind::kConfig, "[sweep] expected --trials beside a range, got none.");
  }
  const int64_t cells = has_range ? std::numeric_limits<int64_t>::max() : grid_size(space.axes);
  if (count > cells) {
    fail(ErrorKind::kConfig, "[sweep] expected --trials of at most ", cells,
         space.axes.empty() ? ", as no key varies, got " : ", which the lists have, got ", count,
         '.');
  }
  SweepTrials trials;
  if (!has_range && (count == 0 || count == cells)) {
    for (int64_t cell = 0; cell < cells; ++cell) trials.push_back(cell_of(space.axes, cell));
    return trials;
  }
  std::set<std::vector<std::string>> seen;
  while (std::ssize(trials) < count) {
    const PhiloxKey key{seed, static_cast<uint32_t>(trials.size()), 0};
    uint64_t attempt = 0;
    std::vector<std::string> trial = draw_trial(space, key, attempt);
    while (!seen.insert(trial).second && attempt < kMostAttempts) {
      trial = draw_trial(space, key, ++attempt);
    }
    if (attempt == kMostAttempts) {
      fail(ErrorKind::kConfig, "[sweep] expected --trials of at most ", trials.size(),
           ", as many different ones as there are, got ", count, '.');
    }
    trials.push_back(std::move(trial));
  }
  return trials;
}

}  // namespace tapestry
