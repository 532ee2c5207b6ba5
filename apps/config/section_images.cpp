// The keys of a run that classifies images.
#include "apps/config/sections.h"

namespace tapestry {

void bind_image_corpus(ConfigSection& s, CorpusSpec& corpus) {
  s.read_input_file("images", corpus.images);
  s.read_input_file("labels", corpus.labels);
  bind_range(s, corpus, /*applies=*/true);
}

void bind_image_data(ConfigSection& s, Config& config) {
  ImageFormat& image = config.data.image;
  s.section("image", [&](ConfigSection& i) {
    i.read("height", image.size.height, at_least(0));
    i.read("width", image.size.width, at_least(0));
    i.read("channels", image.size.channels, at_least(0));
    i.read("mean", image.mean, between(0, 1));
    i.read("std", image.std, positive());
    const ImageSize& size = image.size;
    const bool all = size.height > 0 && size.width > 0 && size.channels > 0;
    if (!all && !(size == ImageSize())) {
      i.complain("", "'data.image' must have height, width and channels or none of them, got ",
                 size.height, ", ", size.width, " and ", size.channels, '.');
    }
    const auto channels = static_cast<size_t>(size.channels);
    if (image.mean.size() != image.std.size() ||
        (!image.mean.empty() && image.mean.size() != channels)) {
      i.complain("mean", "'data.image.mean' and std must have a number for each of the ", channels,
                 " channels, or none, got ", image.mean.size(), " and ", image.std.size(), '.');
    }
  });
  s.section("augment", [&](ConfigSection& a) {
    a.read("shift", config.data.augment.shift, between(0, 1 << 16));
    a.read("flip", config.data.augment.flip);
  });
  for (const auto& [key, corpora] :
       {std::pair{"train", &config.data.train}, std::pair{"valid", &config.data.valid}}) {
    for (const CorpusSpec& corpus : *corpora) {
      if (!corpus.images.empty()) continue;
      s.complain(key, '\'', s.full_name(key),
                 "' must be of images, as the first of data.train is.");
    }
  }
}

void bind_image_model(ConfigSection& s, Config& config) {
  ModelOptions& model = config.model;
  const bool vit = config.model_type == ModelType::kVit;
  const std::string why = concat("with type: ", name_of(config.model_type));
  s.read_if(vit, why, "patch_size", model.patch_size, positive());
  s.read_choice_if(vit, why, "head", model.pooled_head, {{"mlp", true}, {"linear", false}});
  const ImageSize& size = config.data.image.size;
  if (vit && (size.height % model.patch_size != 0 || size.width % model.patch_size != 0)) {
    s.complain("patch_size",
               "'model.patch_size' must divide the height and width of data.image, got ",
               model.patch_size, " and ", size.height, " x ", size.width, '.');
  }
}

}  // namespace tapestry
