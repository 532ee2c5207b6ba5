#include "nn/models/vision_transformer.h"

namespace tapestry {
namespace {

ModelOptions with_positions(ModelOptions options, const ImageClasses& data) {
  const int64_t p = options.patch_size;
  check(data.channels >= 1, "vit", "images have channels, got ", data.channels, '.');
  validate_patches(p, data.height, data.width);
  const int64_t first = options.distillation_token ? 2 : 1;
  options.max_position_embeddings = first + (data.height / p) * (data.width / p);
  return options;
}

}  // namespace

void validate_patches(int64_t patch_size, int64_t height, int64_t width,
                      const OptionReport& report) {
  const bool divides = patch_size >= 1 && height >= 1 && width >= 1 && height % patch_size == 0 &&
                       width % patch_size == 0;
  report.expect(divides, "patch_size", "must divide the height and width of the images, got ",
                patch_size, " and ", height, " x ", width, '.');
}

// With h x w patches the images are (B * h, P, w, P * C); the axes P and w are swapped.
Var cut_into_patches(const Var& images, int64_t p) {
  const Shape& shape = images.shape();
  check(shape.rank() == 4 && shape[1] % p == 0 && shape[2] % p == 0, "patches",
        "expected images (B, height, width, C) that patches of ", p, " x ", p, " divide, got ",
        shape, '.');
  const int64_t rows = shape[0], h = shape[1] / p, w = shape[2] / p, row = p * shape[3];
  const Var cut = permute(reshape(images, {rows * h, p, w, row}), {0, 2, 1, 3});
  return reshape(cut, {rows, h * w, p * row});
}

ModelOptions vision_transformer_defaults() {
  ModelOptions options;
  options.hidden_act = Activation::kGelu;
  options.norm_position = NormPosition::kPre;
  options.position_embedding = PositionEmbedding::kLearned;
  return options;
}

VisionTransformer::VisionTransformer(const ModelOptions& o, const ImageClasses& data,
                                     const ParamScope& scope)
    : options(with_positions(o, data)),
      patch_embedding({.in = o.patch_size * o.patch_size * data.channels,
                       .out = o.hidden_size,
                       .init = matrix_init(o),
                       .hidden = false},
                      scope / "patch_embedding"),
      cls(embedding_table(options, 1, scope / "cls")),
      distillation(o.distillation_token ? embedding_table(options, 1, scope / "distillation")
                                        : Var()),
      positions(position_table(options, scope).rows(options.max_position_embeddings)),
      encoder(options, /*causal=*/false, scope),
      head(options, data.classes, options.pooled_head, scope) {}

Var VisionTransformer::hidden(const Var& images) const {
  const int64_t rows = images.shape()[0];
  const Device device = images.value().device();
  // An embedding lookup with one entry repeats the token for each row.
  const Tensor one = Tensor::zeros({rows, 1}, DType::kInt32, device);
  const Var first = embedding(one, cls);
  const Var patches = patch_embedding(cut_into_patches(images, options.patch_size));
  Var x = distillation.defined() ? concat({first, embedding(one, distillation), patches}, 1)
                                 : concat({first, patches}, 1);
  if (positions.defined()) x = x + positions;
  return encoder(dropout(x, options.dropout));
}

LinearClassifier::LinearClassifier(const ModelOptions& o, const ImageClasses& data,
                                   const ParamScope& scope)
    : classifier({.in = data.height * data.width * data.channels,
                  .out = data.classes,
                  .init = matrix_init(o),
                  .hidden = false},
                 scope / "classifier") {}

Var LinearClassifier::operator()(const Var& images) const {
  const int64_t rows = images.shape()[0];
  return classifier(reshape(images, {rows, images.value().numel() / rows}));
}

}  // namespace tapestry
