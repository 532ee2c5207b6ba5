// Classifiers of images: the Vision Transformer (Dosovitskiy et al. 2021), and a linear model for
// comparison.
#pragma once

#include <variant>

#include "nn/models/classifier_head.h"
#include "nn/models/trunk.h"

namespace tapestry {

/// Sizes that come from the data, not from the config.
struct ImageClasses {
  int64_t height = 0;  ///< of an image, in pixels
  int64_t width = 0;
  int64_t channels = 0;  ///< numbers per pixel
  int64_t classes = 0;
};

/// images (B, height, width, C) -> (B, patches, P * P * C): patches of P x P pixels, row by row,
/// each with its pixels row by row.
Var cut_into_patches(const Var& images, int64_t patch_size);

/// Patches must divide the height and width of the images.
void validate_patches(int64_t patch_size, int64_t height, int64_t width,
                      const OptionReport& report = OptionReport::throwing("vit"));

/// The paper's encoder: pre-norm, gelu, learned positions.
ModelOptions vision_transformer_defaults();

/// Patches are projected, a learned CLS token is put before them (and with distillation_token
/// another one behind it, which no head reads: Touvron et al. 2021), positions are added, the
/// encoder runs, and the head reads the CLS token.
struct VisionTransformer {
  /// Throws Error(kConfig) when the patches do not divide the images.
  VisionTransformer(const ModelOptions& options, const ImageClasses& data, const ParamScope& scope);
  /// images (B, height, width, C) -> hidden states (B, tokens, D), the CLS token's first.
  Var hidden(const Var& images) const;
  /// -> logits (B, classes).
  Var operator()(const Var& images) const { return head(hidden(images)); }
  /// Those of an image: CLS, perhaps the one for distillation, patches.
  int64_t tokens() const { return options.max_position_embeddings; }

  ModelOptions options;    ///< max_position_embeddings is the number of tokens
  Linear patch_embedding;  ///< the convolution of the paper: kernel and stride are the patch
  Var cls;                 ///< (1, D)
  Var distillation;        ///< (1, D), or undefined
  Var positions;           ///< (tokens, D), or undefined
  EncoderStack encoder;
  ClassifierHead head;
};

/// Softmax regression: one weight for each pixel, channel and class.
struct LinearClassifier {
  LinearClassifier(const ModelOptions& options, const ImageClasses& data, const ParamScope& scope);
  Var operator()(const Var& images) const;
  int64_t tokens() const { return 1; }

  Linear classifier;
};

/// Either of them.
struct ImageClassifier {
  /// images (B, height, width, C) -> logits (B, classes).
  Var operator()(const Var& images) const {
    return std::visit([&](const auto& model) { return model(images); }, kind);
  }
  /// Rows per image in the layers; tokens/s counts them.
  int64_t tokens() const {
    return std::visit([](const auto& model) { return model.tokens(); }, kind);
  }

  std::variant<VisionTransformer, LinearClassifier> kind;
};

}  // namespace tapestry
