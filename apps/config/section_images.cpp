// The keys of a run that classifies images.
#include "apps/config/sections.h"

namespace tapestry {

void bind_image_corpus(ConfigSection& s, CorpusSpec& corpus) {
  s.demand("images");
  s.read_input_files("images", corpus.images,
                     "IDX file of images; or a text file with a class, a tab and the path of an "
                     "image in each line.");
  s.read_input_files("labels", corpus.labels,
                     "IDX file with the classes of the images, where `images` is an IDX file.");
  bind_range(s, corpus, /*applies=*/true);
}

void bind_image_data(ConfigSection& s, Config& config) {
  ImageFormat& image = config.data.image;
  constexpr double kMostPixels = 1 << 16;
  s.section("image", "The format of the images; what is not given is taken from the data.",
            [&](ConfigSection& i) {
              i.read("height", image.size.height, "Height in pixels; 0: that of the data.",
                     between(0, kMostPixels));
              i.read("width", image.size.width, "Width in pixels; 0: that of the data.",
                     between(0, kMostPixels));
              i.read("channels", image.size.channels, "Numbers of a pixel; 0: those of the data.",
                     between(0, kMostPixels));
              i.read("mean", image.mean,
                     "Mean of each channel, taken from its pixels (in [0, 1]); empty: that of the "
                     "training set.",
                     between(0, 1));
              i.read("std", image.std,
                     "Standard deviation of each channel, by which the pixels are divided.",
                     positive());
            });
  s.section("augment", "How the images of data.train change each time they are seen.",
            [&](ConfigSection& a) {
              a.read("shift", config.data.augment.shift,
                     "Moves an image by up to so many pixels in each direction.",
                     between(0, kMostPixels));
              a.read("flip", config.data.augment.flip,
                     "Turns left and right around in half of the cases.");
            });
}

void bind_image_model(ConfigSection& s, Config& config) {
  ModelOptions& model = config.model;
  const bool vit = config.model_type == ModelType::kVit;
  const std::string why = concat("with type: ", name_of(config.model_type));
  s.read_if(vit, why, "patch_size", model.patch_size,
            "Side of a patch in pixels; it divides the height and width of the images.",
            between(1, 1 << 16));
  s.read_choice_if(vit, why, "head", model.pooled_head, {{"mlp", true}, {"linear", false}},
                   "The classifier: an MLP with a hidden layer, or one matrix.");
  s.read_if(vit, why, "distillation_token", model.distillation_token,
            "A second learned token, behind the one that the classifier reads, as DeiT has it.");
}

}  // namespace tapestry
