#include "apps/interop/gguf/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/text.h"

namespace tapestry::interop {
namespace {

constexpr const char *kFactors = "rope_freqs.weight", *kLong = "rope_factors_long.weight",
                     *kShort = "rope_factors_short.weight";

// Numbers of yarn that no key of these classes changes in their engine.
struct FixedNumber {
  const char* key;
  double value;
  double RopeScaling::*ours;  // null: we compute with that number, too
};
constexpr FixedNumber kFixed[] = {
    {"rope.scaling.yarn_beta_fast", 32, &RopeScaling::beta_fast},
    {"rope.scaling.yarn_beta_slow", 1, &RopeScaling::beta_slow},
    {"rope.scaling.yarn_ext_factor", 1, nullptr},
};
constexpr const char* kAttentionFactor = "rope.scaling.yarn_attn_factor";  // without an effect
constexpr const char* kKeys[] = {"rope.scaling.type",
                                 "rope.scaling.factor",
                                 "rope.scale_linear",
                                 "rope.scaling.original_context_length",
                                 "rope.scaling.attn_factor",
                                 "rope.scaling.finetuned",
                                 kAttentionFactor};

std::vector<float> factors_of(double theta, const RopeScaling& scaling, int64_t size) {
  const RopeFrequencies usual(theta), scaled(theta, scaling);
  std::vector<float> factors;
  for (int64_t i = 0; i < size / 2; ++i) {
    factors.push_back(static_cast<float>(usual(i, size) / scaled(i, size)));
  }
  return factors;
}

}  // namespace

std::vector<float> gguf_rope_factors(const ModelOptions& options) {
  return factors_of(options.rope_theta, options.rope_scaling, options.chosen_head_size());
}

// A frequency w between the two bounds is divided by f, with
//
//     1/f = (1 - s)/F + s,  s = (L w / 2 pi - low) / (high - low):
//
// s is a line in w, which two such frequencies give. Its slope and its place fix L, low and high
// but for one factor of all three.
std::optional<RopeScaling> gguf_rope_scaling(const std::vector<float>& factors, double theta) {
  const auto size = static_cast<int64_t>(2 * factors.size());
  if (factors.empty()) return std::nullopt;
  RopeScaling scaling;
  scaling.type = RopeScalingType::kLlama3;
  scaling.factor = *std::ranges::max_element(factors);
  const RopeFrequencies usual(theta);
  struct Point {
    double w, s;
  };
  std::vector<Point> between;
  for (size_t i = 0; i < factors.size(); ++i) {
    const double f = factors[i];
    if (!(f >= 1)) return std::nullopt;
    if (f == 1 || f == scaling.factor) continue;
    between.push_back({usual(static_cast<int64_t>(i), size),
                       (1 / f - 1 / scaling.factor) / (1 - 1 / scaling.factor)});
  }
  if (between.empty()) return std::nullopt;
  const Point &a = between.front(), &b = between.back();
  // One point: the usual bounds are 1 and 4.
  const bool two = between.size() > 1;
  const double slope = two ? (a.s - b.s) / (a.w - b.w) : (a.s + 1.0 / 3) / a.w;
  const double at_zero = a.s - slope * a.w;
  if (!(slope > 0) || !(at_zero < 0)) return std::nullopt;
  const double high = 1 - 1 / at_zero;  // with low = 1
  const double length = 2 * std::numbers::pi * slope * (high - 1);
  const auto near_whole = [](double x) { return std::abs(x - std::round(x)) <= 1e-4 * x; };
  const auto tidy = [&](double x) { return near_whole(x) && x >= 0.5 ? std::round(x) : x; };
  constexpr double kUsualLength = 8192;
  const double whole = near_whole(length) && length >= 1 ? std::round(length) : kUsualLength;
  const double times = near_whole(length) && length >= 1 ? 1 : kUsualLength / length;
  scaling.low_freq_factor = times;
  scaling.high_freq_factor = times == 1 ? tidy(high) : times * high;
  scaling.original_max_position_embeddings = static_cast<int64_t>(whole);
  const std::vector<float> made = factors_of(theta, scaling, size);
  for (size_t i = 0; i < factors.size(); ++i) {
    if (std::abs(made[i] - factors[i]) > 1e-5f * factors[i]) return std::nullopt;
  }
  return scaling;
}

const char* gguf_rope_type(const RopeScaling& scaling) {
  const bool by_tensor = scaling.type == RopeScalingType::kLlama3;
  return scaling.type == RopeScalingType::kNone || by_tensor ? nullptr : name_of(scaling.type);
}

void add_gguf_rope_tensors(const ModelOptions& options, std::vector<TensorToWrite>& tensors) {
  const auto add = [&](const char* name, const std::vector<float>& factors) {
    tensors.emplace_back(name, Tensor::from(factors, {std::ssize(factors)}));
  };
  const RopeScaling& scaling = options.rope_scaling;
  const auto single = [](const std::vector<double>& factors) {
    return std::vector<float>(factors.begin(), factors.end());
  };
  if (scaling.type == RopeScalingType::kLlama3) add(kFactors, gguf_rope_factors(options));
  if (scaling.type != RopeScalingType::kLongrope) return;
  add(kLong, single(scaling.long_factor));
  add(kShort, single(scaling.short_factor));
}

namespace {

bool computes(const GgufClass& one, RopeScalingType type) {
  return std::ranges::find(one.scalings, type) != one.scalings.end();
}

}  // namespace

void refuse_gguf_rope(const GgufClass& one, const ModelOptions& options, Reasons& reasons) {
  const RopeScaling& scaling = options.rope_scaling;
  if (!one.rotates() || scaling.type == RopeScalingType::kNone) return;
  if (!computes(one, scaling.type)) {
    reasons.push_back(concat("model.rope_scaling.type: ", name_of(scaling.type),
                             ", which their program does not compute for ", one.name));
  }
  if (scaling.type != RopeScalingType::kYarn) return;
  if (!scaling.truncate) reasons.emplace_back("model.rope_scaling.truncate: false");
  for (const FixedNumber& row : kFixed) {
    if (row.ours == nullptr || scaling.*row.ours == row.value) continue;
    const std::string_view key = row.key;
    reasons.push_back(concat("model.rope_scaling.", key.substr(key.find('_') + 1), ": ",
                             scaling.*row.ours, ", their program computes with ", row.value));
  }
}

bool is_gguf_rope_key(const std::string& key) {
  return std::ranges::find(kKeys, key) != std::end(kKeys) ||
         std::ranges::find(kFixed, key, &FixedNumber::key) != std::end(kFixed);
}

bool is_gguf_rope_tensor(const std::string& name) {
  return name == kFactors || name == kLong || name == kShort;
}

namespace {

std::vector<float> factors_in(const GgufFile& file, const char* name) {
  const GgufTensor* const stored = file.find(name);
  return stored == nullptr ? std::vector<float>() : file.read(*stored).to_vector<float>();
}

// Reads one file; each function adds rope_scaling to `config`, or a reason.
struct RopeReader {
  const GgufFile& file;
  const GgufClass& one;
  Json& config;
  Reasons& reasons;

  std::string key(const char* name) const { return one.full_key(name); }
  double real(const char* name, double usual) const { return file.real(key(name)).value_or(usual); }
  // Without a type a factor means linear, as for their engine.
  std::string type() const { return file.text(key("rope.scaling.type")).value_or("linear"); }
  double factor() const {
    const double factor = real("rope.scaling.factor", real("rope.scale_linear", 0));
    return factor == 0 ? 1 : factor;
  }
  Json original() const {
    const auto length = file.integer(key("rope.scaling.original_context_length"));
    return length ? Json(*length) : config.value("max_position_embeddings", Json());
  }

  void refuse(const char* name, double value, double expected) const {
    reasons.push_back(concat(key(name), " is ", value, ", their program computes with ", expected));
  }
  // Where no factor of attention has a place.
  void check_attention() const {
    const double attention = real("rope.scaling.attn_factor", 1);
    if (attention == 1) return;
    reasons.push_back(concat(key("rope.scaling.attn_factor"), " is ", attention,
                             ", Tapestry has a place for it only with yarn and longrope"));
  }

  void read_linear() const {
    check_attention();
    if (factor() != 1) config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", factor()}};
  }

  void read_yarn() const {
    for (const FixedNumber& row : kFixed) {
      if (const double value = real(row.key, row.value); value != row.value) {
        refuse(row.key, value, row.value);
      }
    }
    RopeScaling scaling{RopeScalingType::kYarn, factor()};
    const double usual = RopeFrequencies(1, scaling).attention_factor();
    const double attention = real("rope.scaling.attn_factor", 1) * usual;
    const double unused = real(kAttentionFactor, 1);
    if (unused != 1 && std::abs(unused - attention) > 1e-6 * attention) {
      refuse(kAttentionFactor, unused, attention);
    }
    config["rope_scaling"] = {{"rope_type", "yarn"},
                              {"factor", scaling.factor},
                              {"original_max_position_embeddings", original()}};
    if (attention != usual) config["rope_scaling"]["attention_factor"] = attention;
  }

  void read_longrope() const {
    if (factor() != 1) refuse("rope.scaling.factor", factor(), 1);
    for (const char* name : {kLong, kShort}) {
      if (file.find(name) == nullptr) reasons.push_back(concat("no tensor ", name));
    }
    config["rope_scaling"] = {{"rope_type", "longrope"},
                              {"original_max_position_embeddings", original()},
                              {"attention_factor", real("rope.scaling.attn_factor", 1)},
                              {"short_factor", factors_in(file, kShort)},
                              {"long_factor", factors_in(file, kLong)}};
  }

  void read_llama3() const {
    const std::vector<float> factors = factors_in(file, kFactors);
    const auto rotated = file.integer(key("rope.dimension_count"));
    const GgufTensor* const stored = file.find(kFactors);
    if (stored != nullptr && rotated && 2 * std::ssize(factors) != *rotated) {
      reasons.push_back(concat(kFactors, " is ", stored->shape, ", ", key("rope.dimension_count"),
                               ": ", *rotated, " needs half as many"));
      return;
    }
    if (std::ranges::all_of(factors, [](float value) { return value == 1; })) return;
    const auto scaling = gguf_rope_scaling(factors, config.value("rope_theta", 10000.0));
    if (!scaling || config.contains("rope_scaling")) {
      reasons.push_back(concat(kFactors, " holds factors of frequencies ",
                               scaling ? "beside rope.scaling" : "that no rope_scaling here has"));
      return;
    }
    if (!computes(one, RopeScalingType::kLlama3)) {
      reasons.push_back(concat(kFactors, ", which their program does not read for ", one.name));
    }
    config["rope_scaling"] = {
        {"rope_type", "llama3"},
        {"factor", scaling->factor},
        {"low_freq_factor", scaling->low_freq_factor},
        {"high_freq_factor", scaling->high_freq_factor},
        {"original_max_position_embeddings", scaling->original_max_position_embeddings}};
  }

  void read() const {
    struct Row {
      RopeScalingType type;
      void (RopeReader::*read)() const;
    };
    static constexpr Row kRows[] = {{RopeScalingType::kLinear, &RopeReader::read_linear},
                                    {RopeScalingType::kYarn, &RopeReader::read_yarn},
                                    {RopeScalingType::kLongrope, &RopeReader::read_longrope}};
    const bool stretched = file.find(kLong) != nullptr || file.find(kShort) != nullptr;
    const std::string name = stretched && one.longrope_by_tensors ? "longrope" : type();
    if (stretched && name != "longrope") {
      reasons.push_back(concat(kLong, " and ", kShort, " beside ", key("rope.scaling.type"), " '",
                               name, "', expected longrope"));
    }
    const bool off = name == "none" || (name == "linear" && factor() == 1);
    if (off) return check_attention();
    std::string known = "none";
    for (const Row& row : kRows) {
      if (!computes(one, row.type)) continue;
      known += concat(", ", name_of(row.type));
      if (name == name_of(row.type)) return (this->*row.read)();
    }
    reasons.push_back(
        concat(key("rope.scaling.type"), " is '", name, "', expected one of ", known));
  }
};

}  // namespace

void read_gguf_rope(const GgufFile& file, const GgufClass& one, Json& config, Reasons& reasons) {
  const RopeReader reader{file, one, config, reasons};
  reader.read();
  reader.read_llama3();
}

}  // namespace tapestry::interop
