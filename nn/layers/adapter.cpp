#include "nn/layers/adapter.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/pattern.h"
#include "nn/layers/parameters.h"

namespace tapestry {
namespace {

constexpr const char* kDown = "lora_A";
constexpr const char* kUp = "lora_B";
constexpr const char* kMagnitude = "lora_magnitude";

}  // namespace

Tensor row_lengths(const Tensor& matrix) {
  const Var wide = matrix.to(wider(matrix.dtype()));
  return convert(sqrt(sum(wide * wide, 1)), matrix.dtype()).value();
}

struct Adapter::Lengths {
  Tensor squares = {};  // of W's rows, undefined before they are asked for and if W learns
  Tensor held = {};
  int64_t holders = 0;
};

bool LoraOptions::adapts(const std::string& path) const {
  return rank > 0 && std::any_of(target.begin(), target.end(),
                                 [&](const auto& pattern) { return matches(path, pattern); });
}

void LoraOptions::validate(const OptionReport& report) const {
  report.expect(rank >= 0, "rank", "must be at least 0, got ", rank, '.');
  report.expect(alpha > 0, "alpha", "must be positive, got ", alpha, '.');
  report.expect(dropout >= 0 && dropout < 1, "dropout", "must be from 0 to below 1, got ", dropout,
                '.');
  report.expect(!target.empty(), "target", "must name layers, got none.");
}

// A starts as PEFT's and PyTorch's linear layers do: U(-b, b), b = 1 / sqrt(in).
Adapter::Adapter(int64_t in, const std::vector<int64_t>& parts, const WeightMatrix& weight,
                 const ParamScope& scope)
    : a(scope.create(kDown, {scope.lora().rank, in},
                     {Init::Kind::kUniform, 1 / std::sqrt(static_cast<double>(in))})),
      b(scope.create(kUp,
                     {std::accumulate(parts.begin(), parts.end(), int64_t{0}), scope.lora().rank},
                     Init::zeros())),
      scale(scope.lora().scale()),
      dropout(scope.lora().dropout),
      weight_(weight),
      precision_(scope.precision()) {
  scope.declare_projections(kDown, {scope.lora().rank});
  scope.declare_projections(kUp, parts);
  if (!scope.lora().dora) return;
  lengths_ = std::make_shared<Lengths>();
  const auto start = [own = *this](const std::string& name) { return own.first_magnitude(name); };
  const auto hold = [own = *this] { return own.hold(); };
  magnitude = scope.create_derived(kMagnitude, {b.shape()[0]}, "weight", start, hold);
}

// The scale is applied where rows are shortest, which costs least. Dropout reaches the adapter
// alone: with magnitudes PEFT's W reads some of x with it, too.
Var Adapter::operator()(const Var& x) const {
  return linear(scale * linear(tapestry::dropout(x, dropout), a, Var()), b, Var());
}

// |w + s b A|^2 = |w|^2 + 2 s b . A w + s^2 b . A A^T b for each row: one product of r rows with W.
Tensor Adapter::lengths(const Tensor& squares) const {
  const bool has_values = !weight_.packed() && !weight_.frozen();
  const WeightMatrix constant = has_values ? WeightMatrix(Var(weight_.value())) : weight_;
  const DType wide = squares.dtype();
  const Var of_weight =
      convert(constant.multiply(Var(a.value()), Var(), {.precision = precision_}), wide);
  const Var down = convert(Var(a.value()), wide), up = convert(Var(b.value()), wide);
  const Var of_adapter = matmul(up, matmul(down, down, {.trans_b = true}));
  const Var more = 2 * scale * permute(of_weight, {1, 0}) + scale * scale * of_adapter;
  return convert(sqrt(Var(squares) + sum(up * more, 1)), a.dtype()).value();
}

Tensor Adapter::first_magnitude(const std::string& name) const {
  const Tensor found = lengths(weight_.row_squares());
  const std::vector<double> values = found.to(Device{}).to(DType::kFloat64).to_vector<double>();
  const auto zero = std::ranges::find_if(values, [](double value) { return !(value > 0); });
  if (zero != values.end()) {
    fail(ErrorKind::kConfig, "[lora] row ", zero - values.begin(), " of the matrix beside ", name,
         " has no length, and training.lora.dora divides by it: leave the layer out of "
         "training.lora.target.");
  }
  return found;
}

Var Adapter::gain() const {
  if (lengths_->holders > 0) return magnitude / Var(lengths_->held);
  const bool learns = !weight_.packed() && !weight_.frozen() && weight_.var().needs_grad();
  if (!lengths_->squares.defined() || learns) lengths_->squares = weight_.row_squares();
  return magnitude / Var(lengths(lengths_->squares));
}

std::shared_ptr<void> Adapter::hold() const {
  if (lengths_->holders == 0) lengths_->held = lengths(weight_.row_squares());
  ++lengths_->holders;
  return {lengths_.get(), [kept = lengths_](Lengths* lengths) {
            if (--lengths->holders == 0) lengths->held = {};
          }};
}

bool is_adapter(const std::string& parameter) {
  return std::ranges::any_of(
      std::initializer_list<const char*>{kDown, kUp, kMagnitude},
      [&](const char* part) { return parameter.ends_with(concat('.', part)); });
}

bool is_magnitude(const std::string& parameter) {
  return parameter.ends_with(concat('.', kMagnitude));
}

Tensor with_adapter(const Tensor& value, const std::string& name, const LoraOptions& options,
                    const std::function<std::optional<Tensor>(const std::string& name)>& part) {
  constexpr std::string_view kWeight = ".weight";
  if (options.rank == 0 || !name.ends_with(kWeight)) return value;
  const std::string layer = name.substr(0, name.size() - kWeight.size() + 1);
  const std::optional<Tensor> down = part(layer + kDown), up = part(layer + kUp);
  if (!down || !up) return value;
  const Tensor sum = (Var(value) + options.scale() * matmul(Var(*up), Var(*down))).value();
  const std::optional<Tensor> magnitude = part(layer + kMagnitude);
  if (!magnitude) return sum;
  const Var gain = Var(*magnitude) / Var(row_lengths(sum));
  return (Var(sum) * reshape(gain, {magnitude->numel(), 1})).value();
}

}  // namespace tapestry
