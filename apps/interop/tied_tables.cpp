#include "apps/interop/foreign_folder.h"

namespace tapestry::interop {

void compare_tied(const Folder& folder, Json& model, Reasons& reasons, Reasons& notes) {
  if (model.value("tie_word_embeddings", Json(true)) != true) return;
  const auto share = folder.config.find("share_encoder_decoder_embeddings");
  const bool two_tables =
      folder.architecture == &kMarian && share != folder.config.end() && *share == false;
  std::vector<std::pair<const char*, const char*>> pairs = folder.architecture->tied;
  if (two_tables) pairs = {{"model.decoder.embed_tokens.weight", "lm_head.weight"}};
  const bool both_sides = folder.architecture->type == ModelType::kEncoderDecoder;
  const bool of_bart = std::string_view(folder.architecture->prefix) == "model.";
  if (both_sides && of_bart && !folder.names.has("model.shared.weight") && !two_tables) {
    pairs = {{"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"},
             {"model.encoder.embed_tokens.weight", "lm_head.weight"},
             {"model.decoder.embed_tokens.weight", "lm_head.weight"}};
  }
  for (const auto& [tensor, copy] : pairs) {
    if (!folder.names.has(tensor) || !folder.names.has(copy)) continue;
    if (folder.reader.equal(folder.names.stored(tensor), folder.names.stored(copy))) continue;
    if (folder.architecture->may_untie && copy == std::string_view("lm_head.weight")) {
      // Released files of T5 1.1 have a classifier of its own, whatever config.json says.
      model["tie_word_embeddings"] = false;
      model["share_encoder_decoder_embeddings"] = true;
    } else if (both_sides || !std::string_view(copy).ends_with(".weight")) {
      // The bias of a classifier that is untied already is the copy.
      if (model["tie_word_embeddings"] == false) continue;
      reasons.push_back(
          concat(copy, " differs from ", tensor, ", and tie_word_embeddings is true"));
    } else {
      model["tie_word_embeddings"] = false;
      notes.push_back(
          concat(copy, " differs from ", tensor,
                 ", so that tie_word_embeddings: true is not so: they stay two tables."));
    }
  }
}

}  // namespace tapestry::interop
